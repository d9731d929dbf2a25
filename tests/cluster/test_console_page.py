"""The page of the console in a real browser, on three brokers: each view and each button once.

All tests share one console, one browser and one page, because each of them costs seconds of processor time.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.clusters.running_cluster import BROKERS
from support.commands.commands import Command, run, started, text_in

from minikafka.tools.cluster import LocalCluster
from minikafka.tools.console.views.fault_actions import FAULTS

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
expect = sync_api.expect
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
WAIT_MS = 30_000
STILL = {"reduced_motion": "reduce"}
"""An option of a page without animations, for which the browser would draw 60 pictures in a second."""
TOPIC = "console-page"
HOSTILE = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
)
NO_NAME = """() => [...document.querySelectorAll("button, input, select, textarea, a, [role=region], [role=img]")]
  .filter(node => node.checkVisibility())
  .filter(node => !(node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim()))
  .map(node => node.outerHTML)"""
"""The visible elements that a screen reader cannot name."""


@pytest.fixture(scope="module")
def messages() -> list[str]:
    """What the browser complained about: refused scripts and styles, uncaught exceptions."""
    return []


@pytest.fixture(scope="module")
def data(shared_cluster: LocalCluster) -> Iterator[Path]:
    """The directory of the cluster, with a topic. Everything that a test stopped is started again at the end."""
    here = shared_cluster.directory.path
    create = ("topics", "create", TOPIC, "--partitions", "3", "--replication-factor", "3")
    assert run(*create, "--data", str(here), cwd=here).code == 0
    yield here
    run("start", "zookeeper", "--data", str(here), cwd=here)
    for broker in map(str, BROKERS):
        run("resume", broker, "--data", str(here), cwd=here)
        run("start", broker, "--data", str(here), cwd=here)


@contextmanager
def console(data: Path, *options: str) -> Iterator[tuple[str, Command]]:
    """Run a console, and yield its URL and its command. `options`: how it gets its cluster."""
    with started(("console", *options, "--port", "0"), data, "") as command:
        deadline = time.monotonic() + WAIT_MS / 1000
        while not (found := re.search(r"http://\S+", text_in(command.out))):
            assert time.monotonic() < deadline, text_in(command.err)
            time.sleep(0.05)
        yield found[0], command


@pytest.fixture(scope="module")
def url(data: Path) -> Iterator[str]:
    """The URL of a console of the cluster."""
    with console(data, "--data", str(data)) as (address, _):
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    expect.set_options(timeout=WAIT_MS)
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def context(browser: Any) -> Any:
    """The context of the pages. The first page of a context takes ten times as long as the next."""
    return browser.new_context(viewport={"width": 1280, "height": 900}, **STILL)


@pytest.fixture(scope="module")
def shared_page(context: Any, url: str, messages: list[str]) -> Any:
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.on(
        "console", lambda message: messages.append(message.text) if is_complaint(message) else None
    )
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(url)
    return page


def is_complaint(message: Any) -> bool:
    """True for an error, except a request that failed: the page shows what a broker that is down cannot answer."""
    return message.type == "error" and not message.text.startswith("Failed to load resource")


@pytest.fixture
def page(shared_page: Any, messages: list[str]) -> Iterator[Any]:
    """The page, at the view of the cluster. The test fails if the browser complained."""
    show(shared_page, "cluster")
    find_rows(shared_page)
    messages.clear()
    yield shared_page
    if shared_page.locator("dialog[open]").count():
        shared_page.keyboard.press("Escape")
    assert messages == []


def row_of(page: Any, partition: int) -> Any:
    return page.locator(f'[role=row][data-key="{TOPIC}-{partition}"]')


def find_rows(page: Any) -> None:
    """Filter the grid, in which other tests may have many partitions, and wait for the rows of the topic."""
    page.locator("[role=grid]").wait_for()
    page.locator("[data-filter]").fill(f"{TOPIC}-")
    page.locator("[data-filter]").blur()
    expect(row_of(page, 0)).to_be_visible()


def show(page: Any, *path: str) -> None:
    page.evaluate(f"location.hash = {json.dumps('#/' + '/'.join(path))}")


def confirm(page: Any, command: str) -> None:
    """Check that the dialog shows this command line and a plan, confirm once, and wait for the end of the command."""
    dialog = page.locator("dialog[open]")
    expect(dialog.locator(".command code")).to_contain_text(command)
    expect(dialog.get_by_text("What will happen")).to_be_visible()
    dialog.locator("[data-confirm]").click()
    expect(dialog.get_by_text("Done.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def field(page: Any, label: str) -> Any:
    """Return a field of the open dialog."""
    return page.locator("dialog[open]").get_by_label(label, exact=True)


def press(page: Any, broker: str, verb: str) -> None:
    page.get_by_role("button", name=f"{verb} {broker}", exact=True).click()


def test_cluster_shows_the_leader_and_the_isr_of_each_partition(page: Any) -> None:
    marks = row_of(page, 0).locator(".mark")

    expect(marks).to_have_count(len(BROKERS))
    assert sorted(marks.all_inner_texts()) == ["L", "●", "●"]
    names = [mark.get_attribute("aria-label") for mark in marks.all()]
    assert sum(": leader" in name for name in names) == 1
    assert sum(": in sync" in name for name in names) == 2
    expect(row_of(page, 0)).to_contain_text("healthy")


def test_grid_is_used_with_the_keyboard_alone(page: Any) -> None:
    page.locator("[data-filter]").fill("")
    page.locator("[data-filter]").blur()
    page.keyboard.press("/")
    page.keyboard.type(f"{TOPIC}-")
    expect(page.locator("[role=grid]")).to_have_attribute("aria-rowcount", "4")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    grid = page.locator("[role=grid]")
    expect(grid).to_be_focused()
    active = page.locator(f"[id='{grid.get_attribute('aria-activedescendant')}']")
    expect(active).to_have_attribute("aria-colindex", "2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"{TOPIC}-1")).to_be_visible()

    page.keyboard.press("Escape")

    expect(grid).to_be_visible()


def test_cluster_view_has_a_structure_for_screen_readers(page: Any) -> None:
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.locator("[role=grid] [tabindex]").count() == 0


def test_partition_shows_its_replicas_and_goes_back_in_time(page: Any) -> None:
    show(page, "partition", TOPIC, "0")
    for broker in BROKERS:
        expect(page.get_by_role("group", name=f"Broker {broker}, ")).to_be_visible()
    events = page.locator(".chains > li")
    expect(events.last).to_contain_text("create")

    page.get_by_role("button", name="◀ Event before").click()

    expect(page.locator(".chains > li.current")).to_have_count(1)
    expect(page.get_by_role("slider", name="Time")).not_to_have_attribute("aria-valuetext", "Now")
    page.get_by_role("button", name="Now").click()
    page.get_by_role("button", name="Why?").click()
    expect(page.locator(".why")).to_contain_text(f"minikafka why {TOPIC}-0")


@pytest.mark.parametrize(
    "view",
    ["cluster", "topics", "groups", "transactions", f"topics/{TOPIC}", f"partition/{TOPIC}/0"],
)
def test_view_names_everything_that_can_be_used_and_fits_a_phone(page: Any, view: str) -> None:
    show(page, view)
    expect(page.locator("main .view")).to_be_visible()

    page.set_viewport_size({"width": 360, "height": 740})
    width = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size({"width": 1280, "height": 900})

    assert page.evaluate(NO_NAME) == []
    assert width <= 360


def test_colours_follow_the_system_and_the_switch(page: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    page.keyboard.press("t")

    assert light != dark
    assert page.evaluate(ground) == light  # the switch wins over the system

    page.keyboard.press("t")
    page.keyboard.press("t")
    page.emulate_media(color_scheme="light")


def snapshot(partitions: int) -> str:
    """Return a stream with the state of an imaginary cluster."""
    brokers = [
        {
            "id": id_,
            "host": "h",
            "port": 9092,
            "state": "running",
            "leaders": 0,
            "preferred": 0,
            "replicas": 0,
        }
        for id_ in BROKERS
    ]
    rows = {
        f"t-{n}": [1, 0, [1, 2, 3], [1, 2, 3], [], n, n, 0, [], [], None] for n in range(partitions)
    }
    cluster = {"live": True, "brokers": brokers, "partitions": rows, "problems": [], "unseen": []}
    return f"event: snapshot\ndata: {json.dumps(cluster)}\n\n"


def test_grid_of_ten_thousand_partitions_has_only_elements_for_rows_in_sight(
    context: Any, url: str
) -> None:
    page = context.new_page()
    page.route(
        "**/api/stream*",
        lambda route: route.fulfill(content_type="text/event-stream", body=snapshot(10_000)),
    )
    page.goto(url)
    grid = page.locator("[role=grid]")
    expect(grid).to_have_attribute("aria-rowcount", "10001")
    page.keyboard.press("g")
    page.keyboard.press("Control+End")

    expect(page.locator('[data-key="t-9999"]')).to_be_visible()
    assert page.locator(".grid-space [role=row]").count() < 60
    page.close()


def test_page_without_its_token_says_what_to_open(context: Any, url: str) -> None:
    page = context.new_page()
    page.goto(url.partition("?")[0])
    expect(page.get_by_role("alert")).to_contain_text("has no token")
    page.goto(url.partition("?")[0] + "?token=wrong")
    expect(page.get_by_role("alert")).to_contain_text("token")
    page.close()


def test_broker_is_killed_and_started_with_one_confirmation_each(page: Any) -> None:
    press(page, "broker 3", "Kill")
    dialog = page.locator("dialog[open]")
    expect(dialog.locator(".plan")).to_contain_text("SIGKILL")
    page.keyboard.press("Escape")
    expect(page.locator('[data-broker="3"]')).to_have_class("card running")  # nothing ran

    press(page, "broker 3", "Kill")
    confirm(page, "minikafka kill 3")
    expect(page.locator('[data-broker="3"]')).to_have_class("card down")
    expect(page.locator("#banner")).to_contain_text("roker 3 is down")
    expect(row_of(page, 0)).to_contain_text("ISR lacks 3")
    expect(page.locator(".feed")).to_contain_text("3 left the ISR")

    press(page, "broker 3", "Start")
    confirm(page, "minikafka start 3")
    expect(page.locator('[data-broker="3"]')).to_have_class("card running")
    expect(row_of(page, 0)).not_to_contain_text("ISR lacks")


def test_broker_is_paused_resumed_and_stopped(page: Any) -> None:
    card = page.locator('[data-broker="2"]')
    press(page, "broker 2", "Pause")
    confirm(page, "minikafka pause 2")
    expect(card).to_have_class("card paused")
    press(page, "broker 2", "Resume")
    confirm(page, "minikafka resume 2")
    expect(card).to_have_class("card running")
    press(page, "broker 2", "Stop")
    confirm(page, "minikafka stop 2")
    expect(card).to_have_class("card down")
    press(page, "broker 2", "Start")
    confirm(page, "minikafka start 2")
    expect(card).to_have_class("card running")


def test_button_works_when_the_page_changes_while_it_is_pressed(page: Any, url: str) -> None:
    other = page.context.new_page()
    other.goto(url)
    page.get_by_role("button", name="Pause broker 1", exact=True).hover()
    page.mouse.down()
    press(other, "broker 2", "Stop")
    confirm(other, "minikafka stop 2")
    expect(other.locator("#banner")).to_contain_text("roker 2")

    page.mouse.up()

    expect(page.locator("dialog[open]")).to_contain_text("Pause broker 1")
    page.keyboard.press("Escape")
    expect(page.locator("#banner")).to_contain_text("roker 2")
    press(page, "broker 2", "Start")
    confirm(page, "minikafka start 2")
    expect(page.locator('[data-broker="2"]')).to_have_class("card running")
    other.close()


def test_page_works_and_says_so_when_zookeeper_is_paused(page: Any) -> None:
    card = page.locator('[data-broker="zookeeper"]')
    press(page, "ZooKeeper", "Pause")
    confirm(page, "minikafka pause zookeeper")
    expect(card).to_have_class("card paused")
    expect(page.locator("#banner")).to_contain_text("ooKeeper")
    expect(row_of(page, 0).locator(".mark").first).to_be_visible()

    press(page, "ZooKeeper", "Resume")
    confirm(page, "minikafka resume zookeeper")

    expect(card).to_have_class("card running")


def test_page_works_and_says_so_when_zookeeper_is_dead(page: Any) -> None:
    card = page.locator('[data-broker="zookeeper"]')
    press(page, "ZooKeeper", "Kill")
    confirm(page, "minikafka kill zookeeper")
    expect(card).to_have_class("card down")
    expect(page.locator("#banner")).to_contain_text("ZooKeeper is down")
    expect(row_of(page, 0).locator(".mark")).to_have_count(len(BROKERS))
    show_each_view(page)

    show(page, "cluster")
    press(page, "ZooKeeper", "Start")
    confirm(page, "minikafka start zookeeper")

    expect(card).to_have_class("card running")
    expect(page.locator("#banner")).not_to_contain_text("ZooKeeper is down")


def show_each_view(page: Any) -> None:
    """Show the views of what the topic has, which must not wait for those that do not answer."""
    show(page, "topics")
    expect(page.get_by_role("link", name=TOPIC, exact=True)).to_be_visible()
    for view in (("groups",), ("transactions",), ("topics", TOPIC), ("partition", TOPIC, "0")):
        show(page, *view)
        expect(page.locator("main .view")).to_be_visible()
    for broker in BROKERS:
        expect(page.get_by_role("group", name=f"Broker {broker}, ")).to_be_visible()
    page.get_by_role("button", name="Why?").click()
    expect(page.locator(".why")).to_contain_text(f"minikafka why {TOPIC}-0")


def test_page_works_and_says_so_when_most_brokers_are_dead(page: Any) -> None:
    dead = (2, 3)
    for broker in dead:
        press(page, f"broker {broker}", "Kill")
        confirm(page, f"minikafka kill {broker}")
        expect(page.locator(f'[data-broker="{broker}"]')).to_have_class("card down")
        expect(page.locator("#banner")).to_contain_text(f"roker {broker} is down")
    expect(page.locator(".health")).to_contain_text("broker 2 is down; broker 3 is down")
    expect(row_of(page, 0).locator(".mark.offline")).to_have_count(len(dead))
    show_each_view(page)

    show(page, "cluster")
    find_rows(page)
    for broker in dead:
        press(page, f"broker {broker}", "Start")
        confirm(page, f"minikafka start {broker}")

    for broker in dead:
        expect(page.locator(f'[data-broker="{broker}"]')).to_have_class("card running")
    expect(row_of(page, 0)).not_to_contain_text("ISR lacks")


def test_fault_script_shows_its_steps_and_what_each_has_hit(page: Any, tmp_path: Path) -> None:
    page.get_by_role("button", name="More actions…").click()
    dialog = page.locator("dialog[open]")
    cut = dialog.locator("li").filter(has=page.get_by_role("button", name="Cut", exact=True))
    expect(cut.get_by_role("button")).to_be_disabled()
    expect(cut).to_contain_text("minikafka up --faults")
    dialog.get_by_role("button", name="Run faults").click()
    text = field(page, "script, with a table [[fault]] for each fault")
    text.fill('[[fault]]\ndo = "pause"\nbroker = 9\n')
    expect(dialog).to_contain_text("entry 1: there is no broker 9, the cluster has 1, 2, 3")
    expect(dialog.locator("[data-confirm]")).to_be_disabled()

    script = tmp_path / "faults.toml"
    script.write_text('[[fault]]\ndo = "pause"\nbroker = 1\nfor = 0\n')
    field(page, "File").set_input_files(script)
    expect(dialog.locator(".plan")).to_contain_text("pause 1: at the start, for 0 s")
    expect(dialog.locator(".command code")).to_contain_text("minikafka faults run -")
    dialog.locator("[data-confirm]").click()

    expect(dialog.locator("pre.output")).to_contain_text("pause 1: began once, hit 1 process")


SAMPLES = {
    "a": "clients",
    "b": "1",
    "broker": "1",
    "ms": "1",
    "step": "creation.partitions-new",
    "api": "Produce",
    "n": "1",
    "group": "readers",
    "script": '[[fault]]\ndo = "pause"\nbroker = 1\nfor = 0\n',
}
"""A value for each field of a fault without a default."""


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[Path]:
    """The directory of a cluster of one broker with faults. The page's event loop keeps LocalCluster out."""
    here = tmp_path / "data"
    up = run("up", "--faults", "--brokers", "1", "--data", str(here), cwd=tmp_path)
    assert up.code == 0, up
    yield here
    run("down", "--data", str(here), cwd=tmp_path)


def test_each_fault_is_a_button_that_shows_its_command_and_acts(context: Any, faults: Path) -> None:
    def in_effect() -> list[Any]:
        listed = run("faults", "list", "--json", "--data", str(faults), cwd=faults)
        found: list[Any] = json.loads(listed.out)
        return found

    with console(faults, "--data", str(faults)) as (address, _):
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(address)
        for action in FAULTS:
            choose(page, action.name.capitalize().replace("-", " "))
            dialog = page.locator("dialog[open]")
            for argument in action.arguments:
                if argument.name in SAMPLES:
                    dialog.locator(f"[name={argument.name}]").fill(SAMPLES[argument.name])
            verb = "run -" if action.name == "run-faults" else action.name.removesuffix("-faults")
            expect(dialog.locator(".command code")).to_contain_text(f"minikafka faults {verb}")
            expect(dialog.locator("[data-confirm]")).to_be_enabled()
            page.keyboard.press("Escape")
        assert in_effect() == []  # nothing ran

        choose(page, "Cut clients")
        field(page, "id of the broker").fill("1")
        confirm(page, "minikafka faults cut-clients 1")
        assert len(in_effect()) == 1
        choose(page, "Heal")
        confirm(page, "minikafka faults heal")
        assert in_effect() == []
        page.close()


def choose(page: Any, title: str) -> None:
    """Open the dialog of an action from the list of all actions."""
    page.get_by_role("button", name="More actions…").click()
    page.locator("dialog[open]").get_by_role("button", name=title, exact=True).click()


def test_partition_is_reassigned_and_gets_its_preferred_leader(page: Any) -> None:
    show(page, "partition", TOPIC, "2")
    page.get_by_role("button", name="Reassign…").click()
    field(page, "Replicas, preferred leader first").fill("2,1,3")
    confirm(page, f"minikafka reassign {TOPIC}-2 --replicas 2,1,3")
    expect(page.locator(".facts")).to_contain_text("2, 1, 3")
    page.get_by_role("button", name="Elect leader…").click()
    confirm(page, f"minikafka elect --preferred {TOPIC}-2")
    expect(page.locator(".facts")).to_contain_text("broker 2")


def test_topic_is_created_configured_and_deleted(page: Any) -> None:
    show(page, "topics")
    page.get_by_role("button", name="Create topic…").click()
    field(page, "Name").fill("made-by-page")
    field(page, "Partitions").fill("2")
    confirm(page, "minikafka topics create made-by-page --partitions 2")
    page.get_by_role("link", name="made-by-page").click()
    page.get_by_text("Settings", exact=True).click()
    page.get_by_role("button", name="Set retention.ms", exact=True).click()
    field(page, "retention.ms").fill("60000")
    confirm(page, "minikafka configs set --topic made-by-page retention.ms=60000")
    own = page.locator("tr.own")
    expect(own).to_contain_text("60000")
    page.get_by_role("button", name="Reset retention.ms to its default").click()
    confirm(page, "minikafka configs delete --topic made-by-page retention.ms")
    expect(own).to_have_count(0)
    page.get_by_role("button", name="Add partitions…").click()
    confirm(page, "minikafka topics alter made-by-page --partitions 3")
    expect(page.get_by_role("link", name="made-by-page-2")).to_be_visible()
    page.get_by_role("button", name="Delete…").click()
    confirm(page, "minikafka topics delete made-by-page")

    expect(page.get_by_role("link", name="made-by-page")).to_have_count(0)


def test_hostile_record_is_shown_as_text(page: Any) -> None:
    show(page, "topics", TOPIC)
    page.get_by_role("button", name="Follow new records").click()
    page.get_by_role("button", name="Produce…").click()
    field(page, "Value").fill(HOSTILE)
    field(page, "Key").fill("<b>key</b>")
    field(page, "Headers").fill("<i>=<u>")
    confirm(page, f"minikafka produce {TOPIC} --json")
    record = page.locator(".records li").first
    expect(record).to_contain_text(HOSTILE)
    record.locator("summary").click()

    expect(record.get_by_role("table", name="Headers")).to_contain_text("<u>")
    assert page.locator(".records img, .records script, .records b").count() == 0
    assert page.title() == f"{TOPIC} – minikafka"


def test_records_are_searched_and_shown_in_three_forms(page: Any, data: Path) -> None:
    lines = [f'{{"key": "k{n}", "value": "{{\\"n\\": {n}9007199254740993}}"}}' for n in range(4)]
    given = "\n".join(lines) + "\n"
    options = ("--json", "--partition", "1", "--data", str(data))
    produced = run("produce", TOPIC, *options, cwd=data, stdin=given)
    assert produced.code == 0, produced.err
    show(page, "topics", TOPIC)
    found, search = page.locator(".records li"), page.locator("form.search")
    search.get_by_label("Key", exact=True).fill("k2")
    page.get_by_role("button", name="Search").click()
    expect(found).to_have_count(1)
    expect(found).to_contain_text("29007199254740993")
    page.get_by_role("button", name="hex").click()
    expect(found).to_contain_text("7b 22 6e 22")
    page.get_by_role("button", name="JSON").click()
    found.locator("summary").click()
    expect(found.locator("pre")).to_have_text('{\n  "n": 29007199254740993\n}')

    search.get_by_label("Key", exact=True).fill("")
    search.get_by_label("Partition", exact=True).select_option("1")
    search.get_by_label("From", exact=True).select_option("offset")
    search.get_by_label("Offset", exact=True).fill("3")
    page.get_by_role("button", name="Search").click()
    expect(found.first).to_contain_text("k3")
    search.get_by_label("From", exact=True).select_option("time")
    search.get_by_label("Time", exact=True).fill("2099-01-01T00:00:00")
    page.get_by_role("button", name="Search").click()

    expect(found).to_have_count(0)


def test_group_shows_its_lag_and_what_happened(page: Any, data: Path) -> None:
    options = ("--partition", "0", "--data", str(data))
    assert run("produce", TOPIC, *options, cwd=data, stdin="a\nb\n").code == 0
    reading = ("--group", "page-readers", "--exit", "--data", str(data))
    assert run("consume", TOPIC, *reading, cwd=data).code == 0
    assert run("produce", TOPIC, *options, cwd=data, stdin="c\nd\ne\n").code == 0
    show(page, "groups")
    row = page.get_by_role("row", name="page-readers")
    expect(row).to_contain_text("Empty")

    row.get_by_role("link").click()

    offsets = page.get_by_role("table", name="Lag of each partition")
    expect(offsets.get_by_role("row", name=f"{TOPIC}-0")).to_contain_text("3")
    expect(page.get_by_role("table", name="Rebalances")).to_contain_text("member joined")
    page.get_by_role("button", name="Why?").click()
    expect(page.locator(".why")).to_contain_text("minikafka why --group page-readers")


def test_open_transaction_holds_back_records_until_it_is_aborted(
    page: Any, shared_cluster: LocalCluster
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": shared_cluster.bootstrap,
            "transactional.id": "page-copy",
            "log_level": 2,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"not yet", partition=0)
    producer.flush(60)
    show(page, "transactions")
    row = page.get_by_role("row", name="page-copy")
    expect(row).to_contain_text(f"{TOPIC}-0 at")
    expect(row).to_contain_text("1 record not visible to read_committed")
    row.get_by_role("button", name="Why").click()
    expect(page.locator(".why")).to_contain_text("page-copy")

    row.get_by_role("button", name="Abort").click()
    confirm(page, "minikafka transactions fence page-copy")

    expect(row).to_have_count(0)


def test_other_actions_and_the_commands_that_ran_are_listed(page: Any) -> None:
    page.get_by_role("button", name="More actions…").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    field(page, "broker or ZooKeeper").fill("9")
    expect(dialog.locator(".command code")).to_contain_text("minikafka pause 9")
    dialog.locator("[data-confirm]").click()
    expect(dialog).to_contain_text("exit code 1")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="More actions…").click()

    expect(dialog.locator(".ran li").first).to_contain_text("minikafka pause 9")


def test_replay_shows_the_cluster_at_the_time_of_the_slider(context: Any, data: Path) -> None:
    page = context.new_page()
    with console(data, "--replay", str(data)) as (address, _):
        page.goto(address)
        find_rows(page)
        expect(page.locator("#connection")).to_have_text("replay")
        slider = page.get_by_role("slider", name="Time of the replay")
        slider.focus()
        page.keyboard.press("Home")  # the time before the topic was created
        expect(row_of(page, 0)).to_have_count(0)

        page.keyboard.press("End")

        expect(row_of(page, 0)).to_be_visible()
        page.get_by_role("button", name="◀ Event before").click()
        expect(page.get_by_role("button", name="More actions…")).to_be_disabled()
        page.get_by_role("button", name="▶ Play").click()
        expect(page.get_by_role("button", name="❚❚ Pause")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("The console has not answered since")
    page.close()


def test_hidden_page_closes_its_stream_and_connects_again_when_it_is_seen(
    browser: Any, url: str
) -> None:
    page = browser.new_page()
    page.clock.install()
    page.goto(url)
    page.locator("[role=grid]").wait_for()
    look = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    look += " document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(look, True)
    with page.expect_event("requestfailed", lambda ended: "/api/stream" in ended.url):
        page.clock.fast_forward(6000)

    with page.expect_request("**/api/stream*"):
        page.evaluate(look, False)
    page.close()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    here = tmp_path_factory.mktemp("secure")
    (here / "cluster.toml").write_text("[cluster]\nbrokers = 1\nport = 0\n")
    up = run("up", "--secure", cwd=here)
    assert up.code == 0, up.err
    yield LocalCluster(data=here / "data", attached=False)
    assert run("down", cwd=here).code == 0


def test_console_of_a_secure_cluster_acts_as_its_user_and_logs_it(
    context: Any, secure: LocalCluster
) -> None:
    here = secure.directory.path
    login = str(here / "security" / "alice.properties")
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    with console(here, "--bootstrap", secure.bootstrap, "--command-config", login) as (
        url,
        command,
    ):
        page.goto(url)
        expect(page.locator("#connection")).to_contain_text("as alice")
        show(page, "topics")
        page.get_by_role("button", name="Create topic…").click()
        field(page, "Name").fill("of-alice")
        field(page, "Partitions").fill("1")
        confirm(page, "minikafka topics create of-alice --partitions 1")
        show(page, "partition", "of-alice", "0")
        page.get_by_role("button", name="Elect leader…").click()
        dialog = page.locator("dialog[open]")
        dialog.locator("[data-confirm]").click()
        expect(dialog).to_contain_text("exit code 1")
        refused = dialog.locator("pre.output").inner_text().strip().splitlines()[-1]
        log = text_in(command.err)
    why = "no ACL lets the client send this request"
    assert refused == f"minikafka: CLUSTER_AUTHORIZATION_FAILED: {why}"
    ran = [line.partition(" ran: ")[2] for line in log.splitlines() if "alice ran: " in line]
    assert [line.rpartition(": ")[2] for line in ran] == ["exit code 0", "exit code 1"]
    assert "of-alice" in ran[0]
    assert "elect" in ran[1]
    page.close()


def test_console_of_a_data_directory_acts_as_the_administrator(
    context: Any, secure: LocalCluster
) -> None:
    here = secure.directory.path
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    with console(here, "--data", str(here)) as (url, command):
        page.goto(url)
        expect(page.locator("#connection")).to_contain_text("as admin")
        show(page, "topics")
        page.get_by_role("button", name="Create topic…").click()
        field(page, "Name").fill("of-admin")
        field(page, "Partitions").fill("1")
        confirm(page, "minikafka topics create of-admin --partitions 1")
        log = text_in(command.err)
    assert "admin runs: minikafka topics create of-admin" in log
    page.close()
