from xml.etree import ElementTree

from capgraph.comparing.comparison_page import latency_picture, page
from capgraph.comparing.executor_comparison import COLUMNS, ExecutorComparison, ExecutorResult, OutputAccuracy


def result(name: str, latency: float, *, is_close: bool = True) -> ExecutorResult:
    output = OutputAccuracy("y<1>", 3.0, 1e-7, (0, 2), 1, is_close)
    return ExecutorResult(
        name,
        "host",
        latency_seconds=latency,
        outputs=(output,),
        remarks=("a < b",),
        memory_bytes=2**20,
        segments=3,
        fallbacks=17,
    )


RESULTS = (result("eager", 4e-3), result("ort", 1e-3, is_close=False), ExecutorResult("cuda", problem="no <GPU>"))


def test_bars_are_as_long_as_latencies() -> None:
    picture = ElementTree.fromstring(latency_picture(RESULTS))
    slow, fast = picture.findall("rect")
    assert float(slow.attrib["width"]) == 4 * float(fast.attrib["width"])
    assert "wrong" in fast.attrib["fill"]
    assert [text.text for text in picture.findall("text")] == ["eager", "4 ms", "ort", "1 ms"]
    bottom = float(fast.attrib["y"]) + float(fast.attrib["height"])
    assert bottom <= float(picture.attrib["height"])


def test_no_executor_that_ran_is_no_bar() -> None:
    assert ElementTree.fromstring(latency_picture(RESULTS[2:])).findall("rect") == []


def test_the_page_stands_alone_and_escapes_names() -> None:
    skipped = ExecutorResult("ort", "host", "not <there>", "install it")
    text = page(ExecutorComparison("<net>", {"batch": 3}, 2, 20, RESULTS, (skipped,)))
    assert "<li>ort: not &lt;there&gt; (try: install it)</li>" in text
    assert "Skipped" not in page(ExecutorComparison("net", {}, 2, 20, RESULTS))
    assert "<h1>Executors on &lt;net&gt;</h1>" in text
    assert "cannot run: no &lt;GPU&gt;" in text
    assert "y&lt;1&gt;" in text
    assert "[0, 2] of set 1" in text
    assert '<td class="number">3</td><td class="number">17</td>' in text
    assert all(f"<th>{name}</th>" in text for name in COLUMNS)
    assert "batch = 3" in text
    assert [part for part in ("http", "src=", "href=", "<script") if part in text] == []
