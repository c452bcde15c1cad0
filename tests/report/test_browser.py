"""The page in a real browser: nothing injected runs, audio loads, sorting and filtering work."""

import html
import json
import re
import shutil
import subprocess

import pytest

from espnet_latentasr.report.experiment import Options, load_experiment
from espnet_latentasr.report.html import page
from espnet_latentasr.report.listing import listing

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Runs after the page's own script and leaves what it saw in the document.
PROBE = """(() => {
const ids = () => Array.from(document.querySelectorAll("#utterances > details"), (d) => d.dataset);
const out = {title: document.title, first: ids().map((d) => Number(d.saved))};
const press = (key) => document.querySelector(`#heads button[data-key=${key}]`).click();
press("saved"); out.rising = ids().map((d) => Number(d.saved));
press("saved"); out.falling = ids().map((d) => Number(d.saved));
press("id"); out.names = ids().map((d) => d.id);
const visible = () => Array.from(
  document.querySelectorAll("#utterances > details:not([hidden])"), (d) => d.dataset);
const change = document.querySelector("select[name=change]");
change.value = "worse"; change.dispatchEvent(new Event("change"));
out.worse = visible().map((d) => d.change); out.shown = document.getElementById("shown").textContent;
change.value = ""; change.dispatchEvent(new Event("change"));
const find = document.getElementById("find");
find.value = "SCRIPT title"; find.dispatchEvent(new Event("input"));
out.found = visible().map((d) => d.id);
const player = document.querySelector("audio");
const done = () => {
  out.duration = player.duration; out.error = player.error && player.error.message;
  const pre = document.createElement("pre");
  pre.id = "probe"; pre.textContent = JSON.stringify(out); document.body.append(pre);
};
const link = document.querySelector("#utterances > details:last-child .detail > a");
out.closed = link.closest("details").open; location.hash = link.getAttribute("href");
window.dispatchEvent(new HashChangeEvent("hashchange")); out.opened = link.closest("details").open;
player.addEventListener("loadedmetadata", done); player.addEventListener("error", done);
player.preload = "metadata"; player.load();
})();"""


def dump(path, profile):
    """The document as the browser has it after running the page's scripts."""
    done = subprocess.run(
        [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
         "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    # Errors and warnings of scripts, styles and the policy come as such lines.
    assert "CONSOLE" not in done.stderr, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium (Debian: apt-get install chromium)")
def test_page_in_a_browser(experiment, tmp_path):
    options = Options(data_root=experiment / "dump" / "raw", dev="valid")
    exp = load_experiment(experiment / "exp" / "asr_test", options)
    listed = listing(exp, "decode_depths", 50, "link", tmp_path)
    text = page("report", [], {}, listed, "wer")
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    shown = dump(tmp_path / "report.html", tmp_path / "profile")
    assert "<title>report</title>" in shown
    assert "50 of 50 listed utterances" in shown, "the page's own script runs under its policy"

    own = r"script-src .*?; base-uri"
    probed, changed = re.subn(own, "script-src &#x27;unsafe-inline&#x27;; base-uri", text)
    assert changed == 1
    probed = probed.replace("</body>", f"<script>{PROBE}</script></body>")
    (tmp_path / "probe.html").write_text(probed, encoding="utf-8")
    shown = dump(tmp_path / "probe.html", tmp_path / "profile")
    found = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', shown)[1]))
    assert found["title"] == "report", "a transcript with a script must not run it"
    assert found["rising"] == sorted(found["first"])
    assert found["falling"] == sorted(found["first"], reverse=True)
    assert found["names"] == sorted(found["names"])
    worse = sum(saved < 0 for saved in found["first"])
    assert found["worse"] == ["worse"] * worse and worse
    assert found["shown"].startswith(f"{worse} of 50 ")
    assert len(found["found"]) == 1 and "onload" in found["found"][0]
    assert (found["closed"], found["opened"]) == (False, True), "a link to an utterance opens it"
    assert found["error"] is None and found["duration"] > 0.09
