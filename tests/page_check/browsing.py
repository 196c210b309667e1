"""Browser's side of the check of the page: runs in an environment of its own, which has Playwright.

Arguments: the browser's program, the script of axe-core, and the directory for pictures. A line on stdout asks for
a command in the box, of which a line on stdin tells the end.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import BrowserContext, Page, Playwright, sync_playwright

AT = "http://127.0.0.1:8011/"
WIDTHS = {"wide": (1280, 900), "phone": (390, 844)}
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP chat.example 127.0.0.1",
]
PHASES = [
    *("preflight", "hold", "drain", "stop", "release", "start", "load"),
    *("warm-up", "verify", "commit"),
]
"""Phases of a switch in their order; quick ones may be missed."""
MOST_TABS = 200


def tell(**word: object) -> None:
    """Write a line for the parent."""
    print(json.dumps(word), flush=True)  # noqa: T201 - the protocol


def run_in_box(command: str) -> None:
    """Have a command run in the box."""
    tell(run=command)
    assert sys.stdin.readline() == "done\n"


def alert_message() -> dict[str, Any]:
    """Wait for an alert on the phone; return the message."""
    tell(alert=True)
    found: dict[str, Any] = json.loads(sys.stdin.readline())
    return found


NOTIFICATION = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport"
content="width=device-width"><title>notification</title><style>
body {{ margin: 0; padding: 28px 14px; background: #23303f; font: 15px/1.4 system-ui, "DejaVu Sans", sans-serif; }}
article {{ background: #f6f7f9; color: #1a1f27; border-radius: 20px; padding: 14px 16px; }}
header {{ color: #535d6b; font-size: 13px; }} h1 {{ font-size: 16px; margin: 4px 0; }}
p {{ margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }} b {{ color: #1d5bc4; margin-right: 18px; }}
footer {{ margin-top: 8px; }}</style>
<article><header>ntfy &middot; garage &middot; priority {priority}</header><h1>{title}</h1><p>{message}</p>
<footer>{actions}</footer></article></html>"""
"""Notification of a phone, in which the message is a real one."""


class Browsing:
    """Browser, and what the scenarios have in common."""

    def __init__(self, play: Playwright, program: str, axe: Path, profile: str, token: str) -> None:
        self._play = play
        self._program = program
        self._axe = axe.read_text("utf-8")
        self._profile = profile
        self._token = token
        self._opened = 0
        self.axe_checks = 0

    @contextmanager
    def page(
        self, width: str = "wide", scheme: str = "light", *, script: bool = True, also: str = AT
    ) -> Iterator[Page]:
        """Open the page; errors of the script, refused contents and requests to elsewhere fail the scenario."""
        self._opened += 1
        across, down = WIDTHS[width]
        context: BrowserContext = self._play.chromium.launch_persistent_context(
            f"{self._profile}/{self._opened}",
            executable_path=self._program,
            args=FLAGS,
            viewport={"width": across, "height": down},
            color_scheme=scheme,
            java_script_enabled=script,
            is_mobile=width == "phone",
            has_touch=width == "phone",
        )
        faults: list[str] = []
        context.set_default_timeout(15_000)
        try:
            page = context.pages[0]
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("console", lambda said: faults.append(said.text) if _is_fault(said) else None)
            page.on(
                "request",
                lambda asked: (
                    None if asked.url.startswith((AT, also)) else faults.append(asked.url)
                ),
            )
            page.goto(AT)
            yield page
            assert not faults, faults
        finally:
            context.close()

    def sign_in(self, page: Page) -> None:
        """Sign in by the page's own form, as an operator does."""
        page.get_by_role("link", name="Sign in to act").click()
        page.get_by_label("Token of an operator").fill(self._token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(AT)
        assert "(token page)" in page.inner_text("nav")

    def check_axe(self, page: Page) -> None:
        """Check that axe-core finds nothing serious. Its script is run by the debugger, beyond the page's policy."""
        found: dict[str, Any] = page.evaluate(self._axe + "; axe.run(document)")
        bad = [
            (one["id"], [node["html"][:120] for node in one["nodes"]])
            for one in found["violations"]
            if one["impact"] in {"serious", "critical"}
        ]
        assert not bad, bad
        assert len(found["passes"]) > 10, "axe-core has checked nothing"
        self.axe_checks += 1


def wait_until(page: Page, expression: str, *, within_s: float = 30.0) -> None:
    """Wait until an expression is true; the page's policy forbids the way that Playwright has for it."""
    until_s = time.monotonic() + within_s
    while not page.evaluate(expression):
        assert time.monotonic() < until_s, expression
        page.wait_for_timeout(50)  # real time: a browser has no other


def _is_fault(said: Any) -> bool:
    """Tell whether a line of the console is an error; a resource that is not there while a daemon is away is none."""
    harmless = ("Failed to load resource", "Cross-Origin-Opener-Policy header has been ignored")
    return said.type == "error" and not any(text in said.text for text in harmless)


def check_width(browsing: Browsing, width: str, scheme: str, pictures: Path) -> None:
    """No part is wider than the window, axe-core is content, and a picture is taken."""
    with browsing.page(width, scheme) as page:
        browsing.check_axe(page)
        browsing.sign_in(page)
        wide = page.evaluate(
            "[document.scrollingElement.scrollWidth, window.innerWidth,"
            " ...[...document.querySelectorAll('section, section *')]"
            " .filter(e => !e.closest('.scroll, pre, svg') && e.getBoundingClientRect().right > window.innerWidth + 1)"
            " .map(e => e.outerHTML.slice(0, 80))]"
        )
        assert wide[0] <= wide[1] == WIDTHS[width][0], wide
        assert not wide[2:], wide
        order = page.eval_on_selector_all(
            "main section", "all => all.map(e => [e.dataset.part, e.getBoundingClientRect().top])"
        )
        places = dict(order)
        if width == "phone":
            assert places["now"] < places["alerts"] < places["profiles"], places
            assert [name for name, _ in sorted(order, key=lambda one: one[1])] == [
                name for name, _ in order
            ]
        assert page.locator("svg.bar").count() == 2, "two GPUs have a bar each"
        browsing.check_axe(page)
        page.screenshot(path=pictures / f"page-{width}-{scheme}.png", full_page=True)


def check_switch(browsing: Browsing, pictures: Path) -> int:
    """A click on Switch shows the phases in order while they run, and then the profile that serves."""
    with browsing.page("phone") as page:
        browsing.sign_in(page)
        # Begins anew with each document: the form leads to a new one.
        page.add_init_script(
            """(() => { window.seen = []; setInterval(() => {
                const step = document.querySelector('[aria-current="step"]');
                const phase = step && step.dataset.phase;
                if (phase && window.seen.at(-1) !== phase) window.seen.push(phase);
            }, 20); })()"""
        )
        page.get_by_role("button", name="Switch to b").click()
        page.wait_for_selector('[aria-current="step"][data-phase="load"] progress')
        page.screenshot(path=pictures / "page-phone-switch.png")
        text = page.inner_text('[aria-current="step"]')
        assert "of the usual" in text or "longer than the usual" in text, text
        browsing.check_axe(page)
        page.wait_for_selector(".active .is-serving >> nth=0", timeout=30_000)
        wait_until(page, "document.querySelector('.active h3')?.textContent.includes('b')")
        wait_until(page, "!document.querySelector('.operation')")
        seen: list[str] = page.evaluate("window.seen")
    assert seen == sorted(set(seen), key=PHASES.index), seen
    assert "load" in seen
    return len(seen)


def check_lost(browsing: Browsing, pictures: Path) -> float:
    """A supervisor that has gone is told within 20 s, with a growing age; its return takes the sentence away."""
    with browsing.page("phone", "dark") as page:
        run_in_box(
            "systemctl kill -s KILL appliance-supervisor; systemctl stop appliance-supervisor"
        )
        began_s = time.monotonic()
        page.wait_for_selector("#lost:not([hidden])", timeout=25_000)
        took_s = time.monotonic() - began_s
        first = page.inner_text("#lost")
        assert first.startswith("disconnected "), first
        wait_until(page, f"document.getElementById('lost').textContent !== {json.dumps(first)}")
        page.screenshot(path=pictures / "page-phone-lost.png")
        browsing.check_axe(page)
        run_in_box("systemctl start appliance-supervisor")
        page.wait_for_selector("#lost", state="hidden", timeout=30_000)
    return took_s


def check_keyboard(browsing: Browsing) -> int:
    """Every link, button and field is reached by Tab, with a visible focus; Enter on a profile shows it."""
    with browsing.page() as page:
        wanted = page.eval_on_selector_all(
            "a[href], button:not([hidden]), select, input:not([type=hidden]), textarea, summary",
            "all => all.filter(e => e.checkVisibility()).length",
        )
        reached: list[str] = []
        for _ in range(MOST_TABS):
            page.keyboard.press("Tab")
            what = page.evaluate(
                "() => { const e = document.activeElement; if (e === document.body) return '';"
                " const s = getComputedStyle(e);"
                " if (s.outlineStyle === 'none' || parseFloat(s.outlineWidth) < 2) return 'no focus: ' + e.outerHTML;"
                " return e.tagName + ' ' + (e.getAttribute('href') || '') + (e.getAttribute('aria-label') || e.textContent); }"
            )
            if not what or what in reached:
                break
            assert not what.startswith("no focus"), what
            reached.append(what)
        assert reached[0].startswith("A #main"), reached
        assert any("Sign in to act" in one for one in reached), reached
        controls = [
            one
            for one in reached
            if one.split()[0] in {"A", "BUTTON", "SELECT", "INPUT", "TEXTAREA", "SUMMARY"}
        ]
        assert len(controls) == wanted, (wanted, reached)
        page.focus('.profile[data-profile="b"] a')
        page.keyboard.press("Enter")
        page.wait_for_url("**/?profile=b")
        assert page.inner_text("#speed-title") == "Speed of b"
    return len(reached)


def check_without_script(browsing: Browsing) -> None:
    """Without JavaScript the page has the same parts, and its links and forms work."""
    with browsing.page("phone", script=False) as page:
        names = page.locator(".profile h3 a").all_inner_texts()
        assert sorted(names) == ["a", "b"], names
        assert page.locator(".active").count() == 1
        assert not page.locator("[data-copy]").is_visible()
        page.locator(".profile h3 a").last.click()
        page.wait_for_url("**/?profile=*")
        assert page.locator("#speed-title").is_visible()
        browsing.sign_in(page)
        mark = page.get_by_label("Mark of a", exact=True)
        assert mark.input_value() != "live"
        mark.select_option("live")
        with page.expect_navigation():
            page.get_by_role("button", name="Set the mark of a").click()
        # real time: the process has an answer of up to a second ago, which a reload ends
        until_s = time.monotonic() + 5.0
        while mark.input_value() != "live":
            assert time.monotonic() < until_s, mark.input_value()
            page.wait_for_timeout(300)
            page.reload()


def check_requests(browsing: Browsing) -> None:
    """A client's stream has a row; a click on Cancel ends it with an error for the client, and the row goes."""
    with browsing.page() as page:
        browsing.sign_in(page)
        body = json.dumps({"model": "b", "stream": True, "max_tokens": 9000, "messages": []})
        run_in_box(f"echo '{body}' > /var/tmp/client.json")
        asked = "-d @/var/tmp/client.json -o /var/tmp/client.answer"
        run_in_box(
            f"systemd-run -q --unit=client curl -sN http://127.0.0.1:8010/v1/chat/completions {asked}"
        )
        row = page.locator("[data-request]")
        row.wait_for(timeout=20_000)
        assert "answering" in row.inner_text(), row.inner_text()
        browsing.check_axe(page)
        page.get_by_role("button", name="Cancel request").click()
        row.wait_for(state="detached", timeout=20_000)
        run_in_box("grep -q request_cancelled /var/tmp/client.answer")
        run_in_box(
            "journalctl -b -u appliance-supervisor | grep -q 'is cancelled by ana (token page)'"
        )


WORDS = "wombat seventeen"
"""Prompt whose words stand nowhere else."""


def check_prompt(browsing: Browsing, pictures: Path) -> None:
    """A prompt is answered while it is written, and stopped; without the script it is answered whole. Nothing keeps it."""
    with browsing.page("phone") as page:
        browsing.sign_in(page)
        page.get_by_label("Model").select_option("b")
        page.get_by_label("Prompt", exact=True).fill(WORDS)
        page.get_by_role("button", name="Send").click()
        wait_until(page, "document.getElementById('answer').textContent.length > 20")
        assert page.locator("#answer").get_attribute("aria-busy") == "true"
        first = page.locator("#answer").inner_text()
        wait_until(page, f"document.getElementById('answer').textContent.length > {len(first)}")
        browsing.check_axe(page)
        page.locator(".ask").screenshot(path=pictures / "page-phone-prompt.png")
        page.get_by_role("button", name="Stop", exact=True).click()
        wait_until(page, "document.getElementById('answer').textContent.endsWith('[stopped]')")
        assert page.url == AT, page.url
        assert WORDS not in page.evaluate("JSON.stringify([location.href, history.state])")
    with browsing.page("phone", script=False) as page:
        browsing.sign_in(page)
        page.get_by_label("Prompt", exact=True).fill(WORDS)
        with page.expect_navigation(timeout=120_000):
            page.get_by_role("button", name="Send").click()
        assert page.locator("pre.answer").inner_text().strip()
        assert WORDS not in page.url + page.content()
    run_in_box(f"! journalctl -b | grep -v 'grep' | grep -q '{WORDS}'")
    run_in_box(
        f"! grep -rqs '{WORDS}' /var/lib/appliance /var/lib/appliance-health /var/cache/appliance-web"
    )


def check_alert(browsing: Browsing, pictures: Path) -> None:
    """An alert stands on the page with cause and command as on the phone; Ack is done by keyboard."""
    message = alert_message()
    with browsing.page("phone") as page:
        browsing.sign_in(page)
        card = page.locator("article.alert", has_text="GPU").first
        card.wait_for(timeout=20_000)
        browsing.check_axe(page)
        page.screenshot(path=pictures / "page-phone-alert.png")
        button = card.get_by_role("button", name="Ack")
        button.focus()
        with page.expect_navigation():
            page.keyboard.press("Enter")
        page.locator(".alerts", has_text="acked").wait_for(timeout=20_000)
        # A page of its own: the box's own would refuse the styles.
        notification = page.context.new_page()
        notification.set_content(
            NOTIFICATION.format(
                priority=message.get("priority", 3),
                title=escape(message.get("title", "")),
                message=escape(message.get("message", "")),
                actions="".join(
                    f"<b>{escape(str(one.get('label', '')))}</b>"
                    for one in message.get("actions", [])
                ),
            )
        )
        notification.locator("article").screenshot(path=pictures / "alert-phone.png")


def check_extras(browsing: Browsing) -> None:
    """The status is copied as Markdown, chromium would install the page, and the log has lines with colours."""
    with browsing.page() as page:
        browsing.sign_in(page)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=AT)
        page.get_by_role("button", name="Copy as Markdown").click()
        wait_until(page, "document.querySelector('[data-copied]').textContent === 'Copied.'")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "## Profiles" in copied, copied
        faults = page.context.new_cdp_session(page).send("Page.getInstallabilityErrors")
        assert not faults["installabilityErrors"], faults
        assert page.locator(".log pre").inner_text().strip()
        assert page.locator("svg.states rect").count() > 0
        details = page.locator("details summary").first
        details.focus()
        page.keyboard.press("Enter")
        assert page.locator("ul.changes").first.inner_text().strip()


def check_strange_host(browsing: Browsing) -> None:
    """A name that an attacker has made resolve to this machine is refused; the policy allows nothing in the page."""
    with browsing.page(also="http://evil.example:8011/") as page:
        kind, text = page.evaluate(
            "fetch('/status.md').then(async a => [a.headers.get('content-type'), await a.text()])"
        )
        assert kind == "text/markdown; charset=utf-8"
        assert "## Profiles" in text
        answer = page.goto("http://evil.example:8011/")
        assert answer is not None
        assert answer.status == 403
        assert answer.headers["content-type"] == "application/problem+json"
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy


READS = """async () => {
    const at = 'http://127.0.0.1:8010/v1/';
    const headers = {'authorization': 'Bearer none', 'content-type': 'application/json'};
    const asked = model => ({method: 'POST', headers, body: JSON.stringify({model, prompt: 'x', stream: true})});
    const tried = async read => { try { return await read(); } catch (error) { return error.name; } };
    return [
        await tried(async () => (await (await fetch(at + 'models', {headers})).json()).object),
        await tried(async () => (await (await fetch(at + 'completions', asked('default'))).text()).includes('[DONE]')),
        await tried(async () => (await (await fetch(at + 'completions', asked('nothing'))).json()).error.code),
        await tried(async () => (await fetch(at + 'models', {method: 'HEAD'})).status),
    ];
}"""
"""Readings that a page of another origin makes of the gateway: an answer, a stream, an error, and one by HEAD without
a key, for which no browser asks before; a name of an error where it may not."""


def check_other_origins(browsing: Browsing) -> None:
    """A page of an origin that the gateway's settings list reads an answer, a stream and an error; another one none."""
    with browsing.page() as page:
        # Pages of their own: a browser reports each refusal as a fault.
        for origin, found in (
            ("http://chat.example:8700/", ["list", True, "model_not_found", 200]),
            ("http://evil.example:8700/", ["TypeError"] * 4),
        ):
            other = page.context.new_page()
            other.goto(origin)
            assert other.evaluate(READS) == found, origin


def main() -> int:
    """Run every scenario, also after one that failed; the last line has the figures."""
    program, axe, pictures = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    token = sys.stdin.readline().strip()
    figures: dict[str, float] = {"scenarios": 0, "failed": 0}

    def scenario(name: str, check: Callable[[], object]) -> object:
        figures["scenarios"] += 1
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - told, and the next scenario runs
            figures["failed"] += 1
            tell(say=f"✗ {name}: {error}")
            return 0
        tell(say=f"✓ {name}")
        return found

    with TemporaryDirectory() as profile, sync_playwright() as play:
        browsing = Browsing(play, program, axe, profile, token)
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                scenario(
                    f"{width}, {scheme}",
                    lambda w=width, s=scheme: check_width(browsing, w, s, pictures),  # type: ignore[misc]
                )
        figures["phases_seen"] = float(
            str(scenario("a switch", lambda: check_switch(browsing, pictures)))
        )
        scenario("a request that is cancelled", lambda: check_requests(browsing))
        scenario("copy, installation, log and states", lambda: check_extras(browsing))
        scenario("a prompt", lambda: check_prompt(browsing, pictures))
        scenario("an alert", lambda: check_alert(browsing, pictures))
        figures["tabs"] = float(str(scenario("keyboard only", lambda: check_keyboard(browsing))))
        scenario("without JavaScript", lambda: check_without_script(browsing))
        scenario("a strange host name", lambda: check_strange_host(browsing))
        scenario("pages of other origins", lambda: check_other_origins(browsing))
        figures["lost_after_s"] = float(
            str(scenario("a supervisor that is gone", lambda: check_lost(browsing, pictures)))
        )
        figures["axe_checks"] = browsing.axe_checks
    tell(figures=figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
