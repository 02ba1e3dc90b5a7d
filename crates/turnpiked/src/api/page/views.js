// Each view: `make(context)` gives its elements once, and `draw(data)` fills them with each answer.

import { bar, bits, clock, count, duration, el, many, octets, packets, percent, plain, sign, table, theirs } from "./dom.js";
import { figure, spark } from "./chart.js";
import { get, lines } from "./rest.js";

// Losses that SMFs and operators ask for, or that users cause by sending more than they may.
const ASKED_FOR = new Set(["rate", "gate_closed", "far_drop", "packet_rate", "capacity", "ttl", "quota", "prohibited"]);

const rate = (value, sample) => (value === undefined || value === null || !(sample.seconds > 0) ? null : value / sample.seconds);

function eventText(event) {
  const times = event.to === 1 ? "" : ` (${event.to})`;
  const texts = {
    started: event.to ? `turnpiked started, ${many(event.to, "session")} taken over` : "turnpiked started",
    sessions: `sessions: ${count(event.from)} \u2192 ${count(event.to)}`,
    smfs: `SMFs: ${event.from} \u2192 ${event.to}`,
    smf_silent: `an SMF fell silent${times}`,
    smf_restarted: `an SMF restarted${times}`,
    path_failed: `a GTP-U peer stopped answering${times}`,
    path_recovered: `a GTP-U peer answers again${times}`,
    gnb_restarted: `a GTP-U peer restarted${times}`,
    interface_down: `interface ${event.subject} lost`,
    interface_up: `interface ${event.subject} is back`,
    drops: `packets are lost: ${event.subject} (${count(event.to)})`,
    program: "another build of the program took over",
    overload: event.to ? `overload: SMFs are asked to send ${event.to} % less` : "overload is over",
  };
  return texts[event.kind] ?? `${event.kind} ${event.subject ?? ""}: ${event.from} \u2192 ${event.to}`;
}

const BAD_EVENTS = new Set(["smf_silent", "path_failed", "interface_down"]);
const WARN_EVENTS = new Set(["smf_restarted", "gnb_restarted", "drops", "overload", "started"]);
const eventSign = ({ kind }) => (BAD_EVENTS.has(kind) ? "bad" : WARN_EVENTS.has(kind) ? "warn" : "quiet");

const lately = (history, seconds) => history.samples.filter((sample) => sample.at > history.now - seconds);

// Lost packets by reason in the samples of so many seconds.
function losses(history, seconds) {
  const by = new Map();
  for (const sample of lately(history, seconds)) {
    for (const row of sample.drops) by.set(row.reason, (by.get(row.reason) ?? 0) + row.packets);
  }
  return by;
}

// The state in one line: the worst first. [kind, text] each.
export function troubles({ status, peers, history }) {
  const found = [];
  for (const port of status.ports) if (port.trouble) found.push(["bad", `interface ${port.interface}: ${port.trouble}`]);
  const silent = peers.filter((peer) => peer.state !== "up");
  if (silent.length) found.push(["bad", `${silent.length} of ${peers.length} SMFs silent`]);
  if (!peers.length) found.push(["warn", "no SMF"]);
  if (status.gtpu_paths_failed) found.push(["bad", `${status.gtpu_paths_failed} of ${status.gtpu_paths} GTP-U peers do not answer`]);
  if (status.overload_reduction_percent) found.push(["warn", `overload: SMFs are asked to send ${status.overload_reduction_percent} % less`]);
  const full = [["sessions", status.sessions], ...status.tables.map((fill) => [fill.table, fill])];
  for (const [name, fill] of full) if (fill.capacity && fill.used / fill.capacity >= 0.9) found.push(["warn", `${name} ${percent(fill.used, fill.capacity)} full`]);
  const reload = status.config?.last;
  if (["refused", "failed"].includes(reload?.outcome)) found.push(["warn", `the last reload ${reload.outcome === "failed" ? "failed" : "was refused"}: ${reload.reasons.join(", ")}`]);
  if (status.log.lost) found.push(["warn", `${count(status.log.lost)} lines of the log lost`]);
  const lost = [...losses(history, 60)].filter(([reason]) => !ASKED_FOR.has(reason)).sort((a, b) => b[1] - a[1]);
  if (lost.length) found.push(["warn", `lost in the last minute: ${lost.slice(0, 3).map(([reason, n]) => `${reason} ${count(n)}`).join(", ")}`]);
  return found.sort((a, b) => (a[0] === b[0] ? 0 : a[0] === "bad" ? -1 : 1));
}

const tile = (name) => {
  const value = el("dd", {});
  return { node: el("div", { class: "tile" }, el("dt", {}, name), value), set: (...of) => value.replaceChildren(...el("dd", {}, of).childNodes) };
};

export function overview() {
  const names = ["Sessions", "SMFs", "Uplink", "Downlink", "Packets", "Lost", "Load of N4"];
  const tiles = Object.fromEntries(names.map((name) => [name, tile(name)]));
  const ports = el("div", {});
  const whole = { sessions: figure("Sessions"), load: figure("Load") };
  const events = el("ol", { class: "events" });
  const figures = new Map();
  let drawn = "";

  function ofPort(name) {
    return { traffic: figure(`${name}: throughput`), packets: figure(`${name}: packets`), lost: figure(`${name}: lost packets`) };
  }

  function draw({ status, history }) {
    const { samples, interfaces } = history;
    const last = samples.at(-1);
    const sum = (value) => (last ? last.ports.reduce((all, port) => all + (value(port) ?? 0), 0) / last.seconds : null);
    tiles.Sessions.set(count(status.sessions.used), " ", el("small", {}, `of ${count(status.sessions.capacity)}`));
    tiles.SMFs.set(count(status.peers.used));
    tiles.Uplink.set(bits(sum((port) => port.uplink?.out_bytes * 8)));
    tiles.Downlink.set(bits(sum((port) => port.downlink?.out_bytes * 8)));
    tiles.Packets.set(packets(sum((port) => (port.uplink?.out_packets ?? 0) + (port.downlink?.out_packets ?? 0))));
    tiles.Lost.set(packets(sum((port) => port.drops)));
    tiles["Load of N4"].set(`${status.load_percent} %`);

    if (drawn !== interfaces.join()) {
      drawn = interfaces.join();
      figures.clear();
      ports.replaceChildren(...interfaces.map((name) => {
        const of = ofPort(name);
        figures.set(name, of);
        return el("section", {}, el("h2", { id: `port-${name}` }), el("div", { class: "charts" }, of.traffic.node, of.packets.node, of.lost.node));
      }));
    }
    const times = samples.map((sample) => sample.at);
    const marks = history.events.map((event) => ({ at: event.at, text: eventText(event) }));
    const common = { times, marks, now: history.now };
    interfaces.forEach((name, at) => {
      const port = status.ports.find((one) => one.interface === name);
      const head = document.getElementById(`port-${name}`);
      head?.replaceChildren(...el("h2", {}, name, " ", el("small", {}, port?.role ?? ""), " ",
        port?.trouble ? sign("bad", port.trouble) : port ? sign("good", "attached") : sign("quiet", "not configured")).childNodes);
      const values = (way, field, by) => samples.map((sample) => {
        const value = rate(sample.ports[at]?.[way]?.[field], sample);
        return value === null ? null : value * by;
      });
      // An interface of one side has packets of one direction alone.
      const both = (field, by) => {
        const all = [
          { name: "from users", kind: "up", values: values("uplink", field, by) },
          { name: "to users", kind: "down", values: values("downlink", field, by) },
        ];
        const some = all.filter((one) => one.values.some((value) => value > 0));
        return some.length ? some : all;
      };
      const of = figures.get(name);
      of.traffic.draw({ ...common, unit: bits, series: both("in_bytes", 8) });
      of.packets.draw({ ...common, unit: packets, series: both("in_packets", 1) });
      const lost = samples.map((sample) => rate(sample.ports[at]?.drops, sample));
      of.lost.draw({ ...common, unit: packets, series: [{ name: "lost", kind: "loss", values: lost }] });
    });
    whole.sessions.draw({ ...common, unit: plain, series: [{ name: "sessions", kind: "up", values: samples.map((sample) => sample.sessions) }] });
    const load = [
      { name: "N4", kind: "up", values: samples.map((sample) => sample.load_percent) },
      { name: "CPU of the process", kind: "down", values: samples.map((sample) => sample.cpu_percent) },
    ];
    whole.load.draw({ ...common, unit: (value) => `${value.toFixed(value < 10 ? 1 : 0)} %`, series: load });
    events.replaceChildren(...history.events.toReversed().map((event) =>
      el("li", {}, el("time", {}, clock(event.at)), sign(eventSign(event)), el("span", {}, eventText(event)))));
  }

  const nodes = [
    el("h1", {}, "Overview ", el("small", {}, "the last 15 minutes")),
    el("dl", { class: "tiles" }, names.map((name) => tiles[name].node)),
    ports,
    el("section", {}, el("div", { class: "charts" }, whole.sessions.node, whole.load.node)),
    el("section", {}, el("h2", {}, "Changes ", el("small", {}, "marked in the pictures")), events),
  ];
  return { title: "Overview", nodes, draw };
}

export function drops() {
  const box = el("div", {});
  return {
    title: "Drops",
    nodes: [
      el("h1", {}, "Lost packets ", el("small", {}, "by reason, since the counters began")),
      el("section", {}, box),
    ],
    ask: (signal) => get("drops", signal),
    draw({ history }, rows) {
      if (!rows) return;
      const [minute, quarter] = [losses(history, 60), losses(history, 900)];
      const by = new Map();
      for (const row of rows) {
        const of = by.get(row.reason) ?? { ...row, packets: 0, where: [] };
        of.packets += row.packets;
        of.where.push(`${row.interface} ${row.direction} ${count(row.packets)}`);
        by.set(row.reason, of);
      }
      const reasons = [...by.values()].sort((a, b) =>
        (quarter.get(b.reason) ?? 0) - (quarter.get(a.reason) ?? 0) || b.packets - a.packets);
      box.replaceChildren(table("Reasons that happened, those of the last 15 minutes first",
        ["Reason", "Last minute", "15 minutes", "", "All", "Where", "What happened", "What to do"],
        reasons.map((of) => [
          el("span", { class: "whole" }, sign(!quarter.get(of.reason) ? "quiet" : ASKED_FOR.has(of.reason) ? "good" : "warn", el("code", {}, of.reason))),
          minute.get(of.reason) ?? 0,
          quarter.get(of.reason) ?? 0,
          spark(history.samples.map((sample) => sample.drops.reduce((all, row) => all + (row.reason === of.reason ? row.packets : 0), 0))),
          of.packets,
          of.where.map((where) => el("div", { class: "whole" }, where)),
          of.meaning,
          of.advice,
        ]),
        "No packet has been lost."),
        el("p", { class: "quiet" }, "\u25b2 lost lately; \u25cf lost lately as SMFs or operators ask for; \u25cb not in the last 15 minutes. \u201cLast minute\u201d and \u201c15 minutes\u201d are of the history, which begins with the process."));
    },
  };
}

const stateOf = (state) => ({ up: sign("good", "answers"), silent: sign("bad", "silent"), unknown: sign("quiet", "never answered") })[state] ?? state;

export function peers() {
  const [smfs, gnbs, known] = [0, 0, 0].map(() => el("div", {}));
  return {
    title: "Peers",
    nodes: [el("h1", {}, "SMFs and gNBs"), [smfs, gnbs, known].map((one) => el("section", {}, one))],
    ask: (signal) => Promise.all([get("smfs", signal), get("gtpu_peers", signal), get("pfds", signal)]),
    draw({ peers: list }, answer) {
      if (!answer) return;
      const [held, paths, applications] = answer;
      const holding = new Map(held.map((smf) => [smf.node_id, smf]));
      smfs.replaceChildren(table("SMFs", ["Node ID", "Address", "State", "Last heard", "Sessions", "Its part of all", "Recovery"],
        list.map((peer) => {
          const smf = holding.get(peer.node_id);
          const part = smf?.parts.find((one) => one.of === "sessions");
          return [theirs(peer.node_id), el("code", {}, peer.address), stateOf(peer.state),
            smf?.silent_s === undefined ? "\u2013" : `${duration(smf.silent_s)} ago`, peer.sessions,
            { n: part ? [bar(part.held, part.whole), percent(part.held, part.whole)] : "\u2013" },
            { n: peer.recovery_time_stamp === undefined ? "\u2013" : String(peer.recovery_time_stamp) }];
        }),
        "No SMF has an association. Nothing can be established: look at N4 and at n4.smf."));
      const order = { silent: 0, unknown: 1, up: 2 };
      gnbs.replaceChildren(table("gNBs and other GTP-U peers of sessions", ["Address", "Our address", "State", "Recovery"],
        paths.toSorted((a, b) => (order[a.state] ?? 0) - (order[b.state] ?? 0)).slice(0, 1000).map((path) => [
          el("code", {}, path.address), el("code", {}, path.local), stateOf(path.state),
          { n: path.recovery_time_stamp === undefined ? "\u2013" : String(path.recovery_time_stamp) }]),
        "No session sends to a GTP-U peer that is asked by Echo Requests (gtpu.echo_interval_s)."));
      known.replaceChildren(table("Applications that SMFs provisioned (PFDs)", ["Application", "SMFs", "Descriptions"],
        applications.slice(0, 200).map((one) => [theirs(one.application_id), one.smfs.map((smf) => el("div", {}, theirs(smf))),
          one.properties.slice(0, 20).map((pfd) => el("div", {}, `${pfd.kind} `, theirs(pfd.text)))]),
        "None."));
    },
  };
}

const FINDS = [["ue", "UE address"], ["seid", "SEID"], ["teid", "TEID"], ["network_instance", "DNN"]];
const pageSize = 50;

function finder(values, choices, submit, more) {
  const by = el("select", { name: "by", id: "by" }, choices.map(([value, words]) => el("option", { value, selected: value === values.by }, words)));
  const text = el("input", { name: "text", id: "search", value: values.text ?? "", autocomplete: "off", spellcheck: "false" });
  const onsubmit = (event) => {
    event.preventDefault();
    submit(by.value, text.value.trim());
  };
  return el("form", { class: "row", role: "search", onsubmit }, el("label", {}, "By", by), el("label", {}, "Is", text), more);
}

const to = (view, query) => `#/${view}${query ? `?${new URLSearchParams(query)}` : ""}`;

export function sessions({ query, go }) {
  const [box, said] = [el("div", {}), el("p", { class: "quiet", role: "status" })];
  const [by, text, after] = [query.get("by") ?? "ue", query.get("text") ?? "", query.get("after")];
  const form = finder({ by, text }, FINDS, (kind, value) => {
    if (kind === "seid" && value) go(to(`session/${encodeURIComponent(value)}`));
    else go(to("sessions", value ? { by: kind, text: value } : undefined));
  }, el("button", { type: "submit" }, "Search"));
  const path = () => {
    const of = new URLSearchParams({ limit: pageSize });
    if (text) of.set(by, text);
    if (after) of.set("after", after);
    return `sessions?${of}`;
  };
  return {
    title: "Sessions",
    nodes: [el("h1", {}, "Sessions"), el("section", {}, form, said, box)],
    // A search looks through all sessions: once, and again by `r`.
    once: Boolean(text),
    ask: (signal) => get(path(), signal),
    draw(_, page) {
      if (!page) return;
      const more = page.next ? el("a", { href: to("sessions", { ...(text ? { by, text } : {}), after: page.next }) }, text ? "Search on" : "Next page") : "";
      said.replaceChildren(...el("p", {}, text ? `${count(page.sessions.length)} found here, of ${many(page.total, "session")}. ` : `${many(page.total, "session")}. `, more).childNodes);
      box.replaceChildren(table("Sessions of this page", ["SEID", "UE", "SMF", "PDRs", "From the UE", "To the UE", "Lost"],
        page.sessions.map((one) => [
          el("a", { href: to(`session/${one.seid}`) }, el("code", {}, one.seid)), one.ue.map((ue) => el("div", {}, el("code", {}, ue))), theirs(one.peer),
          one.pdrs, { n: `${count(one.uplink.packets)} \u00b7 ${octets(one.uplink.bytes)}` },
          { n: `${count(one.downlink.packets)} \u00b7 ${octets(one.downlink.bytes)}` }, one.uplink.drops + one.downlink.drops]),
        text ? "None has it." : "There is no session."));
    },
  };
}

const optional = (value, unit = (text) => text) => (value === undefined || value === null ? "\u2013" : unit(value));
const ids = (list) => list.join(", ") || "\u2013";

export function session({ part }) {
  const box = el("div", {});
  const chart = { rate: figure("Throughput of this user"), lost: figure("Lost and delayed packets") };
  const seen = [];
  let at = 0;

  function sampled(one, now) {
    if (seen.at(-1)?.now === now) return;
    seen.push({ now, up: one.uplink, down: one.downlink });
    if (seen.length > 181) seen.shift();
  }

  // Between two answers. Counters that are lower than before have begun anew.
  const between = (value) => seen.slice(1).map((next, place) => {
    const [is, was] = [value(next), value(seen[place])];
    return is < was ? null : (is - was) / (next.now - seen[place].now);
  });

  function draw({ history }, one) {
    if (!one) return;
    sampled(one, at);
    const common = { times: seen.slice(1).map((next) => next.now), marks: [], now: history.now };
    const rates = [between((next) => next.up.bytes * 8), between((next) => next.down.bytes * 8)];
    chart.rate.draw({ ...common, unit: bits, series: [
      { name: "from the UE", kind: "up", values: rates[0] }, { name: "to the UE", kind: "down", values: rates[1] }] });
    chart.lost.draw({ ...common, unit: packets, series: [
      { name: "lost", kind: "loss", values: between((next) => next.up.drops + next.down.drops) },
      { name: "delayed", kind: "down", values: between((next) => next.up.delayed + next.down.delayed) }] });
    const instances = [...new Set(one.pdrs_detail.map((pdr) => pdr.network_instance).filter(Boolean))];
    const traffic = (of) => ({ n: `${count(of.packets)} \u00b7 ${octets(of.bytes)}` });
    box.replaceChildren(
      el("section", {}, el("dl", { class: "pairs" },
        el("dt", {}, "UE"), el("dd", {}, one.ue.map((ue) => el("div", {}, el("code", {}, ue)))),
        el("dt", {}, "SMF"), el("dd", {}, theirs(one.peer), " with its SEID ", el("code", {}, one.cp_seid)),
        el("dt", {}, "DNN"), el("dd", {}, instances.length ? instances.map((name) => el("div", {}, theirs(name))) : "\u2013"),
        el("dt", {}, "Inactivity timer"), el("dd", {}, optional(one.user_plane_inactivity_s, duration)),
        el("dt", {}, "Follow"), el("dd", {}, el("a", { href: to("trace", { by: "seid", text: one.seid }) }, "trace this user's packets")))),
      el("section", {}, table("PDRs", ["PDR", "Prec.", "Way", "DNN", "F-TEID", "UE", "QFI", "Filters", "FAR", "QER", "URR", "Forwarded", "Lost", "of QoS", "Delayed"],
        one.pdrs_detail.map((pdr) => [String(pdr.id), pdr.precedence, `${pdr.direction}${pdr.dormant ? " (dormant)" : ""}`, theirs(pdr.network_instance ?? "any"), el("code", {}, pdr.f_teid ?? "\u2013"),
          pdr.ue.map((ue) => el("div", {}, el("code", {}, ue))), ids(pdr.qfis),
          [...pdr.sdf_filters, ...(pdr.predefined_rules ?? []).map((rule) => `predefined ${rule.name}`)].map((filter) => el("div", {}, theirs(filter))),
          optional(pdr.far), ids(pdr.qers), ids(pdr.urrs), traffic(pdr.traffic), pdr.traffic.drops, pdr.traffic.qos_drops, pdr.traffic.delayed]), "No PDR.")),
      el("section", {}, table("FARs", ["FAR", "Action", "To", "DNN", "Policy", "Tunnel"],
        one.fars.map((far) => [String(far.id), far.action, optional(far.destination), theirs(far.network_instance ?? "\u2013"), theirs(far.forwarding_policy ?? "\u2013"), el("code", {}, far.tunnel ?? "\u2013")]), "No FAR.")),
      el("section", {}, table("QERs", ["QER", "QFI", "Gates up, down", "MBR up", "MBR down", "GBR up", "GBR down", "Packet rate up, down"],
        one.qers.map((qer) => [String(qer.id), optional(qer.qfi), `${qer.gate_uplink}, ${qer.gate_downlink}`,
          ...[qer.mbr_uplink_bps, qer.mbr_downlink_bps, qer.gbr_uplink_bps, qer.gbr_downlink_bps].map((value) => ({ n: optional(value, bits) })),
          `${optional(qer.packets_uplink)}, ${optional(qer.packets_downlink)}`]), "No QER: no rate is asked for.")),
      el("section", {}, table("Usage (URRs)", ["URR", "Measures", "Reports on", "Reports", "Since the last", "From the UE", "To the UE", "Threshold", "Quota", "Left", "State"],
        one.urrs.map((urr) => [String(urr.id), ids(urr.method), ids(urr.triggers), urr.reports, `${duration(urr.for_s)} ago`,
          traffic(urr.uplink), traffic(urr.downlink), ...[urr.threshold, urr.quota, urr.quota_left].map((of) => ({ n: optional(of.total, octets) })),
          urr.exhausted ? sign("bad", "exhausted") : urr.pending ? sign("warn", "report is due") : sign("good", "measures")]), "No URR: nothing is measured.")));
  }

  return {
    title: "Session",
    nodes: [el("h1", {}, "Session ", el("code", {}, part ?? "")), el("section", {}, el("div", { class: "charts" }, chart.rate.node, chart.lost.node)), box],
    async ask(signal) {
      const one = await get(`sessions/${encodeURIComponent(part ?? "")}`, signal);
      at = Date.now() / 1000;
      return one;
    },
    draw,
  };
}

const OUTCOMES = { forwarded: "good", answered: "good", slow_path: "quiet", buffered: "warn", to_kernel: "quiet", dropped: "bad" };
const ROWS = 200;

export function trace({ query, go }) {
  const [rows, sums] = [el("tbody", {}), el("p", { role: "status" }, "Nobody is followed.")];
  const values = { by: query.get("by") ?? "ue", text: query.get("text") ?? "" };
  const counts = new Map();
  let [running, lost, note, due] = [null, 0, "", false];
  const button = el("button", { type: "submit" }, values.text ? "Follow anew" : "Follow");
  const stop = el("button", { type: "button", onclick: () => running?.abort() }, "Stop");
  const form = finder(values, FINDS.slice(0, 3), (by, text) => {
    const hash = to("trace", text ? { by, text } : undefined);
    if (location.hash === hash) begin();
    else go(hash);
  }, [button, stop]);
  let fresh = [];

  function row(packet) {
    const words = [packet.outcome, packet.reason ? `: ${packet.reason}` : ""];
    return el("tr", {},
      el("td", {}, el("time", {}, clock(Date.now() / 1000))), el("td", {}, packet.interface), el("td", {}, packet.direction),
      el("td", {}, sign(OUTCOMES[packet.outcome] ?? "quiet", words), packet.meaning ? el("div", { class: "quiet" }, packet.meaning) : ""),
      el("td", { class: "n" }, optional(packet.pdr)), el("td", { class: "n" }, optional(packet.far)), el("td", {}, ids(packet.qers)),
      el("td", {}, el("code", {}, packet.teid ?? "\u2013")), el("td", { class: "n" }, optional(packet.qfi)), el("td", { class: "n" }, count(packet.length)),
      el("td", {}, el("details", {}, el("summary", {}, "octets"), el("code", {}, packet.frame.match(/../g)?.join(" ") ?? ""))));
  }

  // A busy user has thousands of packets a second; what is shown changes five times.
  function show() {
    due = false;
    const made = fresh.slice(-ROWS).reverse().map(row);
    fresh = [];
    rows.prepend(...made);
    while (rows.childElementCount > ROWS) rows.lastElementChild.remove();
    const parts = [...counts].map(([outcome, n]) => `${outcome} ${count(n)}`);
    if (lost) parts.push(`${count(lost)} not told of`);
    sums.replaceChildren(document.createTextNode([note, ...parts].filter(Boolean).join(" \u00b7 ")));
  }
  const later = () => {
    if (!due) due = setTimeout(show, 200);
  };

  async function begin() {
    running?.abort();
    const own = new AbortController();
    running = own;
    counts.clear();
    rows.replaceChildren();
    [lost, note] = [0, "asking"];
    show();
    try {
      const of = new URLSearchParams({ [values.by]: values.text, seconds: 3600 });
      for await (const line of lines(`trace?${of}`, own.signal)) {
        if (line.event === "following") note = line.session ? `following session ${line.session}` : "following; no session has it yet";
        else if (line.event === "packet") {
          counts.set(line.outcome, (counts.get(line.outcome) ?? 0) + 1);
          fresh.push(line);
          if (fresh.length > ROWS) fresh.shift();
        } else if (line.event === "lost") lost = line.packets;
        else if (line.event === "ended") note = `ended: ${line.why}`;
        later();
      }
      if (running === own && note.startsWith("following")) note = "ended: the connection was closed";
    } catch (error) {
      if (running === own) note = own.signal.aborted ? "stopped" : `not followed: ${error.message}`;
    }
    if (running === own) later();
  }

  const heads = ["Time", "Interface", "Way", "What became of it", "PDR", "FAR", "QERs", "TEID", "QFI", "Octets", "Frame"];
  if (values.text) queueMicrotask(begin);
  return {
    title: "Trace",
    nodes: [
      el("h1", {}, "Trace ", el("small", {}, "packets of one user as they come, the newest first")),
      el("section", {}, form, sums,
        el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Packets" },
          el("table", {}, el("caption", {}, `The last ${ROWS} packets`), el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), rows))),
    ],
    draw() {},
    end() {
      running?.abort();
      running = null;
      clearTimeout(due);
    },
  };
}

export function capacities() {
  const [box, fills, ways, waiting] = [0, 0, 0, 0].map(() => el("div", {}));
  return {
    title: "Capacities",
    nodes: [el("h1", {}, "Capacities"), [box, fills, ways, waiting].map((one) => el("section", {}, one))],
    ask: (signal) => Promise.all([get("capacities", signal), get("policies", signal)]),
    draw({ status }, answer) {
      if (!answer) return;
      const [rates, policies] = answer;
      const fill = (used, whole) => ({ n: [bar(used, whole), percent(used, whole)] });
      box.replaceChildren(table("Capacities of interfaces, network instances and groups", ["Name", "Capacity", "Guaranteed", "", "May be guaranteed", "Least share of a flow", "Passed", "Lost"],
        rates.map((of) => [of.name, { n: bits(of.bps) }, { n: bits(of.guaranteed_bps) }, fill(of.guaranteed_bps, of.guaranteed_bps_limit), { n: bits(of.guaranteed_bps_limit) },
          { n: optional(of.share_bps, bits) }, { n: octets(of.bytes) }, of.drops]),
        "None is configured (capacity_kbps): nobody is held back."));
      const rows = [{ table: "sessions", ...status.sessions, refused: 0 }, { table: "SMFs", ...status.peers, refused: 0 }, ...status.tables];
      rows.sort((a, b) => b.used / (b.capacity || 1) - a.used / (a.capacity || 1));
      fills.replaceChildren(table("Tables, the fullest first", ["Table", "Used", "Of", "", "Refused"],
        rows.map((of) => [of.table, of.used, of.capacity, fill(of.used, of.capacity), of.refused]), "None."));
      ways.replaceChildren(table("Forwarding policies", ["Policy", "Way", "Otherwise", "State"],
        policies.map((of) => [of.identifier, of.way, of.fallback, of.network_instances.map((use) =>
          el("div", {}, sign(use.ipv4 === "in use" || use.ipv6 === "in use" ? "good" : "warn", `${use.network_instance}: IPv4 ${use.ipv4}, IPv6 ${use.ipv6}`)))]),
        "No forwarding policy is configured."));
      waiting.replaceChildren(el("dl", { class: "pairs" },
        el("dt", {}, "Memory of the process"), el("dd", {}, octets(status.memory_bytes)),
        el("dt", {}, "Usage to be reported"), el("dd", {}, `${count(status.usage.sessions_waiting)} sessions`),
        el("dt", {}, "GTP-U peers"), el("dd", {}, `${count(status.gtpu_paths)}, ${count(status.gtpu_paths_failed)} of them failed`)));
    },
  };
}
