"""Static files: small enough, nothing inline, nothing from elsewhere."""

import re

from kubesched.insight.page.assets import assets, serve

MAX_SCRIPTS = 52 * 1024


def test_all_scripts_together_are_small():
    scripts = {name: len(each.packed) for name, each in assets().items() if name.endswith(".js")}
    assert sum(scripts.values()) <= MAX_SCRIPTS, scripts


def test_pages_have_nothing_inline_that_the_policy_would_refuse():
    for name, asset in assets().items():
        if name.endswith(".html"):
            text = asset.body.decode()
            assert not re.search(r"<script(?![^>]*\bsrc=)", text), name
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text), name


def test_scripts_never_turn_text_into_html():
    for name, asset in assets().items():
        if name.endswith(".js"):
            text = asset.body.decode()
            found = re.findall(
                r"\binnerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
            )
            assert not found, (name, found)


def test_nothing_is_fetched_from_elsewhere():
    for name, asset in assets().items():
        text = asset.body.decode()
        addresses = set(re.findall(r"https?://[\w.-]+", text))
        assert addresses <= {"http://www.w3.org"}, (name, addresses)


def test_imports_name_files_that_exist():
    for name, asset in assets().items():
        for imported in re.findall(r'from "\./([\w.]+)"', asset.body.decode()):
            assert imported in assets(), (name, imported)


def test_every_module_is_fetched_with_the_page():
    named = set(re.findall(r'static/([\w.]+\.js)"', assets()["index.html"].body.decode()))
    assert named == {name for name in assets() if name.endswith(".js")} - {"enter.js"}


def test_a_browser_that_has_the_file_gets_a_304():
    first = serve("main.js", {"accept-encoding": "gzip"})
    assert first.headers["Content-Encoding"] == "gzip"
    again = serve("main.js", {"if-none-match": first.headers["ETag"]})
    assert again.status == 304
    assert serve("../access.py", {}) is None
