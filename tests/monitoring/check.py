#!/usr/bin/python3
"""Alerts, their tests and the dashboard (deploy/monitoring), as far as Prometheus' own promtool and the documentation judge them:
the rules and the dashboard's expressions are PromQL, and name metrics, labels and values that docs/metrics.md and docs/drops.md have,
which tests of turnpiked compare with what it exports; each alert has a row in docs/symptoms.md, a case that it fires on, and one that
it does not.

  check.py              fails and says why
  check.py --self-test  shows that each of these mistakes is found
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMTOOL = ROOT / "build/tools/bin/promtool"
FOLDER = "deploy/monitoring"
RULES, TESTS, DAY_TESTS = (f"{FOLDER}/turnpike.rules.{name}yml" for name in ("", "test.", "day.test."))
DASHBOARD = f"{FOLDER}/grafana/turnpike.json"
METRICS, DROPS, SYMPTOMS = (f"docs/{name}.md" for name in ("metrics", "drops", "symptoms"))
CAUSES = "crates/pfcp/src/types.rs"
TEXTS = (RULES, TESTS, DAY_TESTS, DASHBOARD, METRICS, DROPS, SYMPTOMS, CAUSES)

SECTIONS = {"page": "alerts-that-page", "ticket": "alerts-for-the-day"}
# Labels of a target, which Prometheus gives.
TARGET = {"job", "instance"}
OPERATORS = {"and", "or", "unless", "offset", "bool"}
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*')
# Grafana's own, and those of the dashboard, as in an expression that is run.
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$instance": ".*"}


def rows(page):
    """Cells of each row of the page's tables, under the anchor of its heading."""
    anchor = ""
    for line in page.splitlines():
        if heading := re.match(r"#+ (.*)", line):
            anchor = re.sub(r"[^\w -]", "", heading[1].lower()).replace(" ", "-")
        elif line.startswith("| ") and line.endswith(" |"):
            yield anchor, [cell.strip() for cell in re.split(r"\s\|(?=\s)", line[1:-1])]


class Documented:
    """Metrics with their labels, and the values of labels, as the documentation has them."""

    def __init__(self, texts):
        # Prometheus' own.
        self.labels = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
        self.values, of_rows = {}, {}
        for anchor, cells in rows(texts[METRICS]):
            for name in re.findall(r"`(\w+)`", cells[0]):
                if anchor == "metrics":
                    self.labels[name] = set(filter(None, cells[1].replace(" ", "").split(",")))
                    of_rows[name] = set(re.findall(r"`(\w+)`", " ".join(cells)))
                elif anchor == "events-on-n4":
                    self.values.setdefault(("turnpike_pfcp_events_total", "event"), set()).add(name)
        self.values["turnpike_drops_total", "reason"] = {re.sub("`", "", cells[0]) for _, cells in rows(texts[DROPS])}
        names = re.findall(r'^\s+\d+ [A-Z_]+ "([^"]+)"', texts[CAUSES], re.M)
        names = {re.sub("[ /-]", "_", name.lower()) for name in names}
        self.values["turnpike_pfcp_messages_total", "cause"] = names | {""}
        self.values["turnpike_pfcp_messages_total", "message"] = names
        for name, labels in self.labels.items():
            for label in labels & {"direction"}:
                is_n4 = name == "turnpike_pfcp_messages_total"
                self.values[name, label] = {"sent", "received"} if is_n4 else {"uplink", "downlink"}
            for label in labels & {"outcome", "acknowledged", "how", "fate", "table", "of"}:
                self.values[name, label] = of_rows[name]


def matchers(text):
    """Label and alternatives of each matcher."""
    for label, how, value in MATCHER.findall(text):
        yield label, value.split("|") if "~" in how else [value]


def names_in(expression, documented, records, wrong):
    """Labels that results may have. Metrics, labels and values that nobody has documented are wrong."""
    found = set(TARGET)
    for name, inside in SELECTOR.findall(expression):
        labels = documented.labels.get(name, records.get(name, set()))
        for label, values in matchers(inside):
            if label not in labels | TARGET:
                wrong(f"{name} has no label {label}")
            known = documented.values.get((name, label))
            for value in values:
                if known is not None and re.fullmatch(r"\w*", value) and value not in known:
                    wrong(f"{name} has no {label} {value}")
                if known is not None and not re.fullmatch(r"[\w:. ]*", value):
                    wrong(f"{name}: {label} {value} cannot be checked")
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', re.sub(r"\{[^}]*\}", "", expression))
    groups = {label for group in GROUPING.findall(bare) for label in re.findall(r"\w+", group)}
    dropped = {
        label for group in re.findall(r"\bwithout\s*\(([^)]*)\)", bare) for label in re.findall(r"\w+", group)
    }
    bare = GROUPING.sub(" ", bare)
    for found_name in re.finditer(r"[a-zA-Z_:][\w:]*", re.sub(r"\[[^\]]*\]|\b\d[\w.]*", " ", bare)):
        name, after = found_name[0], bare[found_name.end() :]
        if name in OPERATORS or name in {"Inf", "sum", "max", "min", "avg", "count", "topk"}:
            continue
        if name in documented.labels or name in records:
            found |= documented.labels.get(name, records.get(name, set()))
        elif not re.search(rf"\b{re.escape(name)}\s*\(", bare):
            wrong(f"there is no metric {name}{after[:20]!r}")
    for label in groups - TARGET - found:
        wrong(f"no metric of {expression.split()[0]}… has the label {label}")
    return found - dropped


def promtool(arguments, files):
    """Output, if it is not content with these files, the last of which it is asked about."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (pathlib.Path(folder) / name).write_text(text, encoding="utf-8")
        command = [PROMTOOL, *arguments, list(files)[-1]]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return [said.stdout + said.stderr] if said.returncode else []


def alerts_of(text):
    """Alerts by name, and names of recording rules with the labels of their series."""
    groups = yaml.safe_load(text)
    # Else it could not be the spec of a PrometheusRule.
    assert list(groups) == ["groups"], f"{RULES} has more than groups"
    every = [rule for group in groups["groups"] for rule in group["rules"]]
    return every, {rule["alert"]: rule for rule in every if "alert" in rule}


def check_rules(texts, documented, wrong):
    """PromQL; names; the reason of each delay. Labels of each recorded series."""
    every, alerts = alerts_of(texts[RULES])
    for said in promtool(["check", "rules", "--lint-fatal"], {"turnpike.rules.yml": texts[RULES]}):
        wrong(said)
    records = {}
    for rule in every:
        name = rule.get("alert", rule.get("record"))
        labels = names_in(rule["expr"], documented, records, lambda said, name=name: wrong(f"{name}: {said}"))
        if "record" in rule:
            records[name] = labels - TARGET
            continue
        annotations = rule["annotations"]
        for label in re.findall(r"\$labels\.(\w+)", " ".join(annotations.values())):
            if label not in labels:
                wrong(f"{name}: its annotations name the label {label}")
        severity = rule["labels"].get("severity")
        if severity not in SECTIONS:
            wrong(f"{name}: severity {severity}")
        runbook = f"{SYMPTOMS}#{SECTIONS.get(severity)} (turnpike help symptoms {name})"
        if set(annotations) != {"summary", "description", "runbook"} or annotations["runbook"] != runbook:
            wrong(f"{name}: its annotations are not summary, description and runbook: {runbook}")
    for block in texts[RULES].split("\n\n"):
        if re.search(r"^\s+for:", block, re.M) and not re.search(r"^\s+#", block, re.M):
            wrong(f"{block.split()[2]}: for, without a reason")
    if len(alerts) != sum("alert" in rule for rule in every):
        wrong("two alerts have one name")
    return alerts, records


def check_runbook(texts, alerts, wrong):
    """Each alert has its row, in the section that its annotation names, and each row its alert."""
    found = {}
    for anchor, cells in rows(texts[SYMPTOMS]):
        if (name := re.fullmatch(r"`(Turnpike\w+)`", cells[0])) and anchor in SECTIONS.values():
            if name[1] in found or len(cells) != 4 or not all(cells):
                wrong(f"{name[1]}: its row in {SYMPTOMS} is there twice, or lacks a cell")
            found[name[1]] = anchor
    wanted = {name: SECTIONS.get(rule["labels"].get("severity")) for name, rule in alerts.items()}
    for name in wanted.keys() | found.keys():
        if wanted.get(name) != found.get(name):
            wrong(f"{name}: {wanted.get(name)} in the rules, {found.get(name)} in {SYMPTOMS}")


def run_tests(texts, wrong):
    """The rules do what their tests say."""
    for name in (TESTS, DAY_TESTS):
        for said in promtool(["test", "rules"], {"turnpike.rules.yml": texts[RULES], "tests.yml": texts[name]}):
            wrong(said)


def check_tests(texts, alerts, documented, wrong):
    """Each alert fires on something, not before its time, and not on something like it."""
    fires, waits, spares = set(), set(), set()
    for test in (test for name in (TESTS, DAY_TESTS) for test in yaml.safe_load(texts[name])["tests"]):
        instances = set()
        for series in test["input_series"]:
            names_in(series["series"], documented, {}, lambda said, of=test["name"]: wrong(f"test of {of}: {said}"))
            name, inside = SELECTOR.fullmatch(series["series"]).groups()
            given = dict(matchers(inside))
            instances |= set(given["instance"])
            lacking = (documented.labels.get(name, set()) | TARGET) - set(given)
            # A request has no cause.
            if lacking - {"cause"}:
                wrong(f"test of {test['name']}: {name} without {lacking}")
        for asked in test.get("alert_rule_test", []):
            name, told = asked["alertname"], asked["exp_alerts"]
            (fires if told else waits).add(name)
            if name not in alerts:
                wrong(f"a test of {name}, which there is not")
            elif told and instances - {one["exp_labels"].get("instance") for one in told} - {"case:9100"}:
                spares.add(name)
            elif not told and not any(instance.startswith("case") for instance in instances):
                spares.add(name)
    for name in alerts:
        for what, those in [("that it fires", fires), ("that it waits", waits), ("that it spares what is like it", spares)]:
            if name not in those:
                wrong(f"{name}: no test shows {what}")


def panels_of(dashboard):
    """All panels, those in rows that are closed included."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def check_panel(panel, wrong):
    """One that shows numbers."""
    if not panel.get("description"):
        wrong("no description")
    if not panel["fieldConfig"]["defaults"].get("unit"):
        wrong("no unit")
    for source in [panel, *panel["targets"]]:
        if source.get("datasource", {}).get("uid") != "${datasource}":
            wrong("its data source is not the variable")
    if len({target["refId"] for target in panel["targets"]}) != len(panel["targets"]):
        wrong("two queries have one letter")


def check_dashboard(texts, documented, records, wrong):
    """JSON that Grafana takes, of expressions that Prometheus takes."""
    dashboard = json.loads(texts[DASHBOARD])
    if not {"datasource", "instance"} <= {one["name"] for one in dashboard["templating"]["list"]}:
        wrong("the dashboard lacks a variable")
    every = list(panels_of(dashboard))
    if len({panel["id"] for panel in every}) != len(every):
        wrong("two panels have one id")
    taken, expressions = {}, []
    for panel in every:
        title = panel["title"]
        at = panel["gridPos"]
        cells = [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        if at["x"] + at["w"] > 24 or any(taken.setdefault(cell, title) != title for cell in cells):
            wrong(f"panel {title}: lies on another one, or beside the page")
        if panel["type"] == "row":
            continue
        check_panel(panel, lambda said, title=title: wrong(f"panel {title}: {said}"))
        expressions += [(title, target["expr"]) for target in panel["targets"]]
    for reasons in re.findall(r'reason!~"([^"]*)"', " ".join(expression for _, expression in expressions)):
        if f'"{reasons}"' not in texts[RULES]:
            wrong(f"the dashboard leaves out other reasons than {RULES}: {reasons}")
    for one in dashboard["templating"]["list"]:
        if one["type"] == "query":
            expressions.append((one["name"], one["query"]["query"]))
            if one["datasource"]["uid"] != "${datasource}":
                wrong(f"variable {one['name']}: its data source is not the variable")
    recording = []
    for title, expression in expressions:
        if inside := re.fullmatch(r"label_values\((.*), \w+\)", expression):
            expression = inside[1]
        elif 'instance=~"$instance"' not in expression:
            wrong(f"panel {title}: of all instances")
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        names_in(expression, documented, records, lambda said, title=title: wrong(f"panel {title}: {said}"))
        # An expression is a rule of its own, so that none is the same as another.
        recording.append({"record": f"panel:{len(recording)}", "expr": expression})
    rules = yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recording}]})
    for said in promtool(["check", "rules"], {"dashboard.yml": rules}):
        wrong(f"dashboard: {said}")


def check(texts):
    """All that is wrong."""
    said = []
    try:
        documented = Documented(texts)
        alerts, records = check_rules(texts, documented, said.append)
        check_runbook(texts, alerts, said.append)
        check_tests(texts, alerts, documented, said.append)
        check_dashboard(texts, documented, records, said.append)
        # The longest.
        if not said:
            run_tests(texts, said.append)
    except (yaml.YAMLError, json.JSONDecodeError, AssertionError, KeyError) as error:
        said.append(repr(error))
    return said


# File, text in it, and the mistake in its place; a word of the complaint.
MISTAKES = [
    (RULES, "turnpike_peers == 0", "turnpike_peers ==", "parse error"),
    (RULES, "turnpike_peers == 0", "turnpike_smfs == 0", "no metric turnpike_smfs"),
    (RULES, 'event="timeout"', 'event="timeouts"', "no event timeouts"),
    (RULES, 'event="timeout"', 'events="timeout"', "no label events"),
    (RULES, "far_drop|", "far_dropped|", "no reason far_dropped"),
    (RULES, "cause!~\"|request_accepted", "cause!~\"|accepted", "no cause accepted"),
    (RULES, "turnpike_interface_attached == 0", "turnpike_interface_attached == 1", "TurnpikeInterfaceGone"),
    (RULES, "        # A gNB restarts within ten minutes.\n", "", "without a reason"),
    (RULES, "$labels.table }} of {{", "$labels.tabel }} of {{", "name the label tabel"),
    (RULES, "symptoms TurnpikeDown)", "symptoms TurnpikeUp)", "runbook"),
    (RULES, "alert: TurnpikeSmfGone", "alert: TurnpikeSmfRestarted", "one name"),
    (RULES, "groups:", "spec: 1\ngroups:", "more than groups"),
    (SYMPTOMS, "| `TurnpikeOverload` |", "| `TurnpikeLoad` |", "TurnpikeOverload"),
    (SYMPTOMS, "## Alerts that page", "## Alerts at night", "alerts-that-page in the rules"),
    (TESTS, "alertname: TurnpikeOverload\n        exp_alerts:\n", "alertname: TurnpikeOverload\n        exp_alerts: []\n        x:\n", "no test shows that it fires"),
    (TESTS, 'instance: "case:8806", table: rules', 'instance: "case:8806", table: entries', "FAILED"),
    (DAY_TESTS, "1000x288 500000x40", "1000x330", "FAILED"),
    (TESTS, 'instance="near:8806", worker="worker-0"', 'instance="near:8806"', "without {'worker'}"),
    (TESTS, "values: _x30 1x150", "values: 0+600x180", "TurnpikeLossByReason"),
    (DASHBOARD, "turnpike_sessions_limit", "turnpike_session_limit", "no metric turnpike_session_limit"),
    (DASHBOARD, "sum by (", "sum by ((", "dashboard"),
    (DASHBOARD, '"id": 2,', '"id": 3,', "one id"),
    (DASHBOARD, '"unit": "bps"', '"unit": ""', "no unit"),
    (DASHBOARD, '"uid": "${datasource}"', '"uid": "prometheus"', "is not the variable"),
    (DASHBOARD, '"description": "Whether', '"caption": "Whether', "no description"),
    (DASHBOARD, "rate|packet_rate|", "rate|", "other reasons"),
    (METRICS, "| `turnpike_peers` |", "| `turnpike_smfs` |", "no metric turnpike_peers"),
]


def self_test(texts):
    """Each mistake alone is complained about."""
    for name, right, mistake, word in MISTAKES:
        assert right in texts[name], f"{name} has no {right!r}"
        said = "\n".join(check(texts | {name: texts[name].replace(right, mistake, 1)}))
        assert word in said, f"{name} with {mistake!r}: {said or 'nothing'}"
    print(f"{len(MISTAKES)} mistakes are found")


def main():
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in TEXTS}
    if said := check(texts):
        sys.exit("\n".join(said))
    if "--self-test" in sys.argv:
        self_test(texts)


main()
