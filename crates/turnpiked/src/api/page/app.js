// The page: which view is shown, when turnpiked is asked, and what is said when it does not answer.

import { clock, duration, el, many, sign } from "./dom.js";
import { Refused, Store, hasToken, setToken } from "./rest.js";
import * as views from "./views.js";

const VIEWS = [
  ["overview", "Overview", "o", views.overview],
  ["drops", "Drops", "d", views.drops],
  ["peers", "Peers", "p", views.peers],
  ["sessions", "Sessions", "s", views.sessions],
  ["trace", "Trace", "t", views.trace],
  ["capacities", "Capacities", "c", views.capacities],
];
const POLL_S = 5;
const SLOWEST_S = 60;

const at = (id) => document.getElementById(id);
const store = new Store();
let view = null;
// Of the view's own question.
let answer = null;
let asking = null;
let timer = 0;
let failures = 0;
let pause_s = POLL_S;
let trouble = null;
let nextAt = 0;

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, part] = path.split("/").map((piece) => {
    try {
      return decodeURIComponent(piece);
    } catch {
      return piece;
    }
  });
  return { name: name || "overview", part, query: new URLSearchParams(query ?? "") };
}

const go = (hash) => {
  location.hash = hash;
};

function show() {
  view?.end?.();
  answer = null;
  delete at("main").dataset.answered;
  const { name, part, query } = route();
  const known = VIEWS.find(([one]) => one === name);
  const make = name === "session" ? views.session : known?.[3];
  view = make ? make({ part, query, go }) : { title: "Not here", nodes: [el("h1", {}, "There is no such view")], draw() {} };
  document.title = `${view.title} \u2013 Turnpike`;
  at("main").replaceChildren(...view.nodes.flat());
  for (const link of at("nav").querySelectorAll("a")) {
    const here = link.getAttribute("href") === `#/${name === "session" ? "sessions" : name}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  draw();
  poll();
}

function draw() {
  if (store.data) view.draw(store.data, answer);
  head();
}

function health(kind, words) {
  const line = sign(kind, words);
  if (at("health").textContent !== line.textContent) at("health").replaceChildren(line);
}

// One line, the worst first.
function head() {
  if (!store.data) return health("quiet", trouble ? "Nothing is known." : "Asking \u2026");
  const { status } = store.data;
  at("node").replaceChildren(...el("span", {}, `${status.node_id} \u00b7 ${status.version} \u00b7 up ${duration(status.uptime_s)}`).childNodes);
  const found = views.troubles(store.data);
  const old = failures > 0 ? " (when it was last asked)" : "";
  if (!found.length) {
    const words = `Serving: ${many(status.sessions.used, "session")}, ${many(status.peers.used, "SMF")}, all interfaces attached${old}`;
    return health("good", words);
  }
  const worst = found[0][0];
  const words = `${worst === "bad" ? "Trouble" : "Look at"}: ${found.map(([, text]) => text).join("; ")}${old}`;
  health(worst, words);
}

// Screen readers tell what has changed: a text that is the same stays as it is, and seconds that pass are none of it.
function put(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

function say() {
  const restarted = !trouble && store.restarted;
  put("trouble", trouble ?? (restarted ? `turnpiked started anew at ${clock(store.restarted)}: its history begins there.` : ""));
  const since = [];
  if (trouble && store.at) since.push(`What is shown is of ${clock(store.at / 1000)}, ${duration((Date.now() - store.at) / 1000)} ago.`);
  const wait = Math.ceil((nextAt - Date.now()) / 1000);
  if (trouble && wait > 0 && !at("token-dialog").open) since.push(`Asked again in ${wait} s.`);
  put("since", since.join(" "));
  at("understood").hidden = !restarted;
  at("banner").hidden = !trouble && !restarted;
  at("age").textContent = store.at ? `Data of ${clock(store.at / 1000)}, asked each ${pause_s} s${document.hidden ? ", paused" : ""}` : "";
}

function askToken(why) {
  at("token-why").textContent = why;
  const dialog = at("token-dialog");
  if (!dialog.open) dialog.showModal();
  at("token").focus();
}

function failed(error) {
  failures += 1;
  let wait_s = Math.min(30, 2 ** (failures - 1));
  if (error instanceof Refused && error.status === 401) {
    trouble = "turnpiked wants a token.";
    askToken(hasToken() ? "turnpiked does not take this token." : "turnpiked wants the token of its REST port.");
    return null;
  }
  if (error instanceof Refused && error.status === 429) {
    pause_s = Math.min(SLOWEST_S, pause_s * 2);
    wait_s = Math.max(pause_s, error.wait_s);
    trouble = `turnpiked is asked too often (api.client_requests_per_s): each ${pause_s} s from now on.`;
  } else if (error instanceof Refused) trouble = `turnpiked refused: ${error.message} (${error.status}).`;
  else trouble = "turnpiked does not answer.";
  return wait_s;
}

// One round of questions, then the next after a while; never two at a time.
async function poll() {
  clearTimeout(timer);
  asking?.abort();
  if (document.hidden || at("token-dialog").open) return;
  const own = new AbortController();
  asking = own;
  const of = view;
  let wait_s;
  try {
    await store.refresh(own.signal);
    const got = of.once && answer ? answer : await of.ask?.(own.signal);
    if (own.signal.aborted) return;
    answer = got;
    [failures, trouble] = [0, null];
    // Slower at once, faster bit by bit.
    pause_s = Math.max(POLL_S, pause_s - 1);
    wait_s = pause_s;
  } catch (error) {
    if (own.signal.aborted) return;
    if (error instanceof Refused && [400, 404].includes(error.status) && of.ask) {
      // The view's own question has no answer: all else is well.
      [failures, trouble] = [0, `${error.message}.`];
      wait_s = pause_s;
    } else wait_s = failed(error);
  }
  draw();
  if (!trouble) at("main").dataset.answered = "";
  if (wait_s !== null) {
    nextAt = Date.now() + wait_s * 1000;
    timer = setTimeout(poll, wait_s * 1000);
  }
  say();
}

const KEYS = [
  ...VIEWS.map(([name, words, key]) => [key, words, () => go(`#/${name}`)]),
  ["/", "Search for sessions", () => {
    if (!at("search")) go("#/sessions");
    setTimeout(() => at("search")?.focus());
  }],
  ["r", "Ask now", () => ((answer = null), poll())],
  ["?", "These keys", () => at("help").showModal()],
];

function start() {
  at("nav").replaceChildren(...VIEWS.map(([name, words]) => el("li", {}, el("a", { href: `#/${name}` }, words))));
  at("keys").replaceChildren(...[...KEYS, ["Esc", "Close"], ["\u2190 \u2192", "In a picture: read values"]].flatMap(([key, words]) => [
    el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)]));
  at("help-open").addEventListener("click", () => at("help").showModal());
  at("help-close").addEventListener("click", () => at("help").close());
  at("understood").addEventListener("click", () => {
    store.restarted = null;
    say();
  });
  at("skip").addEventListener("click", (event) => {
    event.preventDefault();
    at("main").focus();
  });
  at("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(at("token").value.trim());
    at("token").value = "";
    at("token-dialog").close();
    failures = 0;
  });
  at("token-dialog").addEventListener("close", () => poll());
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea, dialog");
    if (typing || event.ctrlKey || event.altKey || event.metaKey) return;
    const key = KEYS.find(([one]) => one === event.key);
    if (!key) return;
    event.preventDefault();
    key[2]();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : poll()));
  window.addEventListener("hashchange", () => {
    show();
    at("main").focus({ preventScroll: true });
    window.scrollTo(0, 0);
  });
  setInterval(say, 1000);
  show();
}

start();
