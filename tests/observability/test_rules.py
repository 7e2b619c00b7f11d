"""The alert rules and the dashboard: sound, tested one by one, each with its page, and about metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from detent.store import Store
from detent.telemetry.exposition import every_metric
from detent.telemetry.metrics import Metrics
from tests.observability.promtool import FOLDER, promtool
from tests.observability.scraping import scrape, serving
from tests.support.sessions import StartSession

RULES = FOLDER / "detent-rules.yml"
RULE_TESTS = [FOLDER / "detent-rules-test.yml", FOLDER / "detent-rules-day-test.yml"]
DASHBOARD = FOLDER / "detent-dashboard.json"
ROOT = FOLDER.parent
_METRIC = re.compile(r"\b(?:detent_[a-z0-9_]+|detent:[a-z0-9_:]+[a-z0-9])")
_HEADINGS = ("## Meaning", "## Diagnosis", "## Action")


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def dashboard_queries() -> list[str]:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", RULES.name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("tests", RULE_TESTS, ids=lambda path: path.stem)
def test_promtool_sees_each_alert_fire_and_none_in_a_healthy_cluster(tests: Path) -> None:
    done = promtool("test", "rules", tests.name)
    assert done.returncode == 0, done.stdout + done.stderr


def mutants() -> list[tuple[str, str, dict[str, Any]]]:
    """Each alert with one of its conditions gone, turned round, or never held for long enough."""
    found = []
    for name, rule in alerts().items():
        conditions = re.split(r"\n\s*or\n", rule["expr"].strip())
        for place, condition in enumerate(conditions):
            for change, mutated in (("gone", "vector(0) > 1"), ("turned round", _turned_round(condition))):
                others = [*conditions[:place], mutated, *conditions[place + 1 :]]
                found.append((name, f"{change} {place + 1}", {**rule, "expr": "\nor\n".join(others)}))
        found.append((name, "never long enough", {**rule, "for": "1000h"}))
    return found


def _turned_round(condition: str) -> str:
    """Its last comparison: what was too much is well, and what was well is too much."""
    opposites = {">": "<=", ">=": "<", "==": "!="}
    return re.sub(
        r"(.*) (>=?|==) ", lambda found: f"{found[1]} {opposites[found[2]]} ", condition, count=1, flags=re.DOTALL
    )


@pytest.mark.parametrize(
    ("name", "change", "mutant"),
    [
        pytest.param(*one, id=" ".join(one[:2]), marks=[pytest.mark.long] if "Budget" in one[0] else [])
        for one in mutants()
    ],
)
def test_an_alert_that_is_changed_fails_its_test(
    tmp_path: Path, name: str, change: str, mutant: dict[str, Any]
) -> None:
    document = yaml.safe_load(RULES.read_text("utf-8"))
    for group in document["groups"]:
        group["rules"] = [mutant if rule.get("alert") == name else rule for rule in group["rules"]]
    (tmp_path / RULES.name).write_text(yaml.safe_dump(document), "utf-8")
    for path in RULE_TESTS:
        tests = yaml.safe_load(path.read_text("utf-8"))
        tests["tests"] = [test for test in tests["tests"] if f'alertname="{name}"' in str(test["promql_expr_test"])]
        (tmp_path / path.name).write_text(yaml.safe_dump(tests), "utf-8")
        done = promtool("test", "rules", str(tmp_path / path.name))
        if done.returncode != 0:
            assert "exp:" in done.stdout + done.stderr, "it is refused, not noticed"
            return
    pytest.fail("no rule notices it")


@pytest.mark.parametrize("tests", RULE_TESTS, ids=lambda path: path.stem)
def test_groups_are_evaluated_in_the_order_of_their_file(tests: Path) -> None:
    """Otherwise the result is another in every run."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    assert yaml.safe_load(tests.read_text("utf-8"))["group_eval_order"] == [group["name"] for group in groups]


def test_every_alert_fires_in_some_test_and_is_silent_in_the_healthy_one() -> None:
    tests = [test for path in RULE_TESTS for test in yaml.safe_load(path.read_text("utf-8"))["tests"]]
    fired = set(re.findall(r'alertname="(\w+)"', json.dumps(tests).replace('\\"', '"')))
    assert fired == set(alerts())
    (healthy,) = [test for test in tests if "healthy" in test["name"]]
    assert all(asked["exp_samples"] == [] for asked in healthy["promql_expr_test"])
    shown = set(_METRIC.findall(json.dumps(healthy["input_series"])))
    asked = {name for rule in rules() for name in _METRIC.findall(rule["expr"]) if name.startswith("detent_")}
    assert asked <= shown, "the healthy cluster must show everything that a rule asks for"


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_is_wrong_and_links_its_runbook(name: str) -> None:
    rule = alerts()[name]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"].endswith(".")
    page = ROOT / rule["annotations"]["runbook"]
    text = page.read_text("utf-8")
    assert f"`{name}`" in text
    assert [heading for heading in _HEADINGS if heading not in text] == []


def test_no_runbook_is_without_an_alert() -> None:
    linked = {rule["annotations"]["runbook"] for rule in alerts().values()} | {"docs/runbooks/index.md"}
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "runbooks").glob("*.md")} == linked


async def test_every_metric_that_a_rule_or_the_dashboard_names_is_reported_by_a_real_node(
    store: Store, start: StartSession
) -> None:
    metrics = Metrics()
    metrics.certificate_expires_at = 1.0  # as a node with TLS has it
    metrics.transport_up = True  # and one on a transport
    session = await start(metrics=metrics)
    async with serving(store, session, metrics) as url:
        families = await scrape(url)
    told = {sample.name for family in families for sample in family.samples}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    queries = [rule["expr"] for rule in rules()] + dashboard_queries()
    asked = {name for query in queries for name in _METRIC.findall(query)}
    assert asked - told - recorded == set()


def test_the_dashboard_shows_every_metric_there_is() -> None:
    """A metric that no rule and no panel uses need not exist."""
    shown = " ".join([*dashboard_queries(), *(rule["expr"] for rule in rules())])
    assert [family.name for family in every_metric() if family.name not in shown] == []
