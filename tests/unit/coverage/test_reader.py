"""Coverage reports, good and odd: a number that the report stands by, or a refusal (never a pass)."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.coverage.measurement import measured
from orchestrator.coverage.reader import FORMATS, MAX_BYTES, Coverage, read_coverage
from orchestrator.domain.errors import ConfigError, MeasurementFailed

ROOT = Path("/checkout")

SAMPLE = """\
def sign(x):
    if x > 0:
        return 1
    if x < 0:
        return -1
    return 0


def unused():
    return None


assert sign(1) == 1 and sign(0) == 0
"""


def json_report(**changes: Any) -> bytes:
    summary = {"covered_lines": 7, "num_statements": 8, "percent_covered": 87.5, "missing_lines": 1}
    document: dict[str, Any] = {
        "meta": {"format": 3, "branch_coverage": False},
        "files": {"src/a.py": {"summary": summary}},
        "totals": dict(summary),
    }
    for path, value in changes.items():
        *parents, key = path.split("__")
        place = document
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[key]
        else:
            place[key] = value
    return json.dumps(document).encode()


def xml_lines(*hits: str) -> str:
    return "".join(f'<line number="{number}" hits="{hit}"/>' for number, hit in enumerate(hits, 1))


def xml_report(
    attributes: str = 'lines-valid="4" lines-covered="3" line-rate="0.75"',
    lines: str = xml_lines("1", "5", "1", "0"),
    filename: str = "a.py",
    source: str = "src",
    head: str = '<?xml version="1.0" ?>',
) -> bytes:
    method = f'<methods><method name="m"><lines>{xml_lines("0", "0")}</lines></method></methods>'
    return (
        f"{head}<coverage {attributes}><sources><source>{source}</source></sources><packages><package><classes>"
        f'<class filename="{filename}">{method}<lines>{lines}</lines></class>'
        f"</classes></package></packages></coverage>"
    ).encode()


def lcov_report(
    lines: str = "DA:1,1\nDA:2,0\nDA:3,7,abc\n", sums: str = "LF:3\nLH:2\n", source: str = "src/a.c"
) -> bytes:
    return f"TN:\nSF:{source}\nFN:1,main\nFNDA:1,main\n{lines}{sums}end_of_record\n".encode()


GOOD = {
    "coverage.py": json_report(),
    "cobertura": xml_report(),
    "lcov": lcov_report(),
}


@pytest.fixture
def put(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "report"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize(
    ("format", "data", "expected"),
    [
        ("coverage.py", json_report(), Coverage(7, 8, 87.5)),
        ("coverage.py", b"\xef\xbb\xbf" + json_report(), Coverage(7, 8, 87.5)),
        ("cobertura", xml_report(), Coverage(3, 4, 75.0)),
        ("cobertura", xml_report('line-rate="0.75"'), Coverage(3, 4, 75.0)),
        ("cobertura", xml_report(source="."), Coverage(3, 4, 75.0)),
        (
            "cobertura",
            xml_report(head='<!DOCTYPE coverage SYSTEM "http://x/coverage-04.dtd">'),
            Coverage(3, 4, 75.0),
        ),
        ("cobertura", xml_report('line-rate="3.3e-1"', xml_lines("1", "0", "0")), Coverage(1, 3, 33.33)),
        ("lcov", lcov_report(), Coverage(2, 3, 66.66)),
        ("lcov", lcov_report(sums=""), Coverage(2, 3, 66.66)),
        ("lcov", lcov_report().replace(b"\n", b"\r\n"), Coverage(2, 3, 66.66)),
        ("lcov", lcov_report() + lcov_report("", "LF:0\nLH:0\n", "src/empty.c"), Coverage(2, 3, 66.66)),
        ("lcov", lcov_report() + lcov_report("DA:2,1\n", "LF:1\nLH:1\n"), Coverage(3, 3, 100.0)),
    ],
    ids=[
        "json",
        "json-bom",
        "xml",
        "xml-no-totals",
        "xml-source",
        "xml-doctype",
        "xml-exponent",
        "lcov",
        "lcov-no-sums",
    ]
    + ["lcov-crlf", "lcov-empty-file", "lcov-two-tests"],
)
def test_good_reports(
    format: str, data: bytes, expected: Coverage, put: Callable[[bytes], Path], tmp_path: Path
) -> None:
    assert read_coverage(put(data), format, root=tmp_path, newer_than=None) == expected


@pytest.mark.parametrize("branch", [False, True], ids=["lines", "branches"])
def test_reports_that_coverage_py_really_writes(branch: bool, tmp_path: Path) -> None:
    for folder in ("src/pkg", "src"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "sample.py").write_text(SAMPLE)
    (tmp_path / "src" / "empty.py").write_text("")
    (tmp_path / "main.py").write_text(
        "import sys; sys.path[:0] = ['src']\nimport pkg.sample, sample, empty\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTEST"))}

    def coverage(command: str, *arguments: str) -> None:
        argv = [sys.executable, "-m", "coverage", command, "--rcfile=/dev/null", *arguments]
        subprocess.run(argv, cwd=tmp_path, env=environment, check=True, capture_output=True)

    coverage("run", *(["--branch"] if branch else []), "main.py")
    for kind, name in (("json", "c.json"), ("xml", "c.xml"), ("lcov", "c.info")):
        coverage(kind, "-o", name)

    totals = json.loads((tmp_path / "c.json").read_bytes())["totals"]
    result = read_coverage(Path("c.json"), "coverage.py", root=tmp_path, newer_than=None)
    assert math.isclose(result.percent, totals["percent_covered"], abs_tol=0.01)
    assert (result.total > totals["num_statements"]) is branch
    for format, name in (("cobertura", "c.xml"), ("lcov", "c.info")):
        lines = read_coverage(Path(name), format, root=tmp_path, newer_than=None)
        assert (lines.covered, lines.total) == (totals["covered_lines"], totals["num_statements"])


ENTITY = '<!DOCTYPE coverage [<!ENTITY x "0.75">]>'
EXTERNAL = '<!DOCTYPE coverage [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
BOMB = (
    '<!DOCTYPE coverage [<!ENTITY a "aaaaaaaaaa">'
    + "".join(
        f'<!ENTITY {name} "{f"&{below};" * 10}">' for below, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]>"
)

BAD = {
    "json-not-json": ("coverage.py", b"TN:\n", "not usable JSON"),
    "json-latin-1": ("coverage.py", b'{"a": "\xe9"}', "not usable JSON"),
    "json-truncated": ("coverage.py", json_report()[:-20], "not usable JSON"),
    "json-deep": ("coverage.py", b"[" * 100_000, "not usable JSON"),
    "json-many-lists": ("coverage.py", b'{"a":[' + b"[]," * 1_000_001 + b"[]]}", "a smaller report"),
    "json-digits": ("coverage.py", b"1" * 10_000, "not usable JSON"),
    "json-list": ("coverage.py", b"[]", "not a JSON object"),
    "json-key-twice": ("coverage.py", json_report()[:-1] + b', "totals": {}}', "a key stands twice"),
    "json-no-totals": ("coverage.py", json_report(totals=None), "'totals' is missing"),
    "json-no-meta": ("coverage.py", json_report(meta=None), "'meta' is missing"),
    "json-no-branch-flag": ("coverage.py", json_report(meta={}), "'meta.branch_coverage' is missing"),
    "json-branches-unmeasured": ("coverage.py", json_report(totals__num_branches=3), "but were not measured"),
    "json-branches-missing": (
        "coverage.py",
        json_report(meta__branch_coverage=True),
        "'covered_branches' is 'None'",
    ),
    "json-no-files": ("coverage.py", json_report(files={}), "names no files"),
    "json-file-no-summary": ("coverage.py", json_report(files={"a.py": {}}), "'summary' is missing"),
    "json-zero": (
        "coverage.py",
        json_report(
            totals={"covered_lines": 0, "num_statements": 0, "percent_covered": 100.0},
            files={"a.py": {"summary": {"covered_lines": 0, "num_statements": 0}}},
        ),
        "no lines at all",
    ),
    "json-nan": ("coverage.py", json_report(totals__percent_covered=math.nan), "NaN is no number"),
    "json-infinity": ("coverage.py", json_report(totals__percent_covered=math.inf), "Infinity is no number"),
    "json-1e999": ("coverage.py", json_report().replace(b"87.5", b"1e999"), "'percent_covered' is inf"),
    "json-huge-percent": (
        "coverage.py",
        json_report(totals__percent_covered=10**400),
        "'percent_covered' is 1000",
    ),
    "json-percent": ("coverage.py", json_report(totals__percent_covered=99.9), "'percent_covered' is 99.9"),
    "json-percent-text": (
        "coverage.py",
        json_report(totals__percent_covered="87,5"),
        "'percent_covered' is no number",
    ),
    "json-percent-true": (
        "coverage.py",
        json_report(totals__percent_covered=True),
        "'percent_covered' is no number",
    ),
    "json-float": ("coverage.py", json_report(totals__covered_lines=7.0), "'covered_lines' is '7.0'"),
    "json-true": ("coverage.py", json_report(totals__covered_lines=True), "'covered_lines' is 'True'"),
    "json-negative": ("coverage.py", json_report(totals__covered_lines=-1), "'covered_lines' is '-1'"),
    "json-sums": ("coverage.py", json_report(totals__covered_lines=8), "its files add up to 7"),
    "json-over": (
        "coverage.py",
        json_report(
            totals={"covered_lines": 9, "num_statements": 8, "percent_covered": 100.0},
            files={"a.py": {"summary": {"covered_lines": 9, "num_statements": 8}}},
        ),
        "9 of 8 lines covered",
    ),
    "json-outside": ("coverage.py", json_report(files={"../x.py": {}}), "it counts the file '../x.py'"),
    "json-absolute": ("coverage.py", json_report(files={"/usr/lib/x.py": {}}), "it counts the file"),
    "xml-not-xml": ("cobertura", b"TN:\n", "not well-formed"),
    "xml-truncated": ("cobertura", xml_report()[:-30], "not well-formed"),
    "xml-trailing": ("cobertura", xml_report() + b"<x/>", "not well-formed"),
    "xml-wrong-root": ("cobertura", b'<report line-rate="0.9"/>', "its root element is 'report'"),
    "xml-namespace": ("cobertura", b'<coverage xmlns="urn:x" line-rate="0.9"/>', "its root element is"),
    "xml-clover": ("cobertura", b'<coverage generated="1"><project/></coverage>', "no lines at all"),
    "xml-no-classes": (
        "cobertura",
        b'<coverage line-rate="0.9" lines-valid="10" lines-covered="9"/>',
        "its lines 0/0",
    ),
    "xml-only-rate": ("cobertura", b'<coverage line-rate="0.9"/>', "no lines at all"),
    "xml-zero": (
        "cobertura",
        xml_report('lines-valid="0" lines-covered="0" line-rate="1"', ""),
        "no lines at all",
    ),
    "xml-zero-contradicted": (
        "cobertura",
        xml_report('lines-valid="0" lines-covered="0" line-rate="1"'),
        "are 0/0",
    ),
    "xml-no-rate": ("cobertura", xml_report('lines-valid="4" lines-covered="3"'), "has no line-rate"),
    "xml-no-covered": ("cobertura", xml_report('lines-valid="4" line-rate="0.75"'), "has no lines-covered"),
    "xml-nan": ("cobertura", xml_report('line-rate="NaN"'), "line-rate is 'NaN'"),
    "xml-inf": ("cobertura", xml_report('line-rate="inf"'), "line-rate is 'inf'"),
    "xml-exponent": ("cobertura", xml_report('line-rate="1e999"'), "line-rate is '1e999'"),
    "xml-above-1": ("cobertura", xml_report('line-rate="1.7"'), "line-rate is '1.7'"),
    "xml-negative": ("cobertura", xml_report('line-rate="-0.75"'), "line-rate is '-0.75'"),
    "xml-comma": ("cobertura", xml_report('line-rate="0,75"'), "with a decimal point"),
    "xml-arabic-digits": ("cobertura", xml_report('line-rate="0.\u0667\u0665"'), "line-rate is"),
    "xml-rate": ("cobertura", xml_report('line-rate="0.95"'), "line-rate is 0.95 where 3 of 4"),
    "xml-sums": ("cobertura", xml_report('lines-valid="4" lines-covered="4" line-rate="1"'), "its lines 3/4"),
    "xml-hits": ("cobertura", xml_report(lines=xml_lines("-1")), "a line's hits is '-1'"),
    "xml-hits-text": ("cobertura", xml_report(lines=xml_lines("many")), "a line's hits is 'many'"),
    "xml-hits-digits": ("cobertura", xml_report(lines=xml_lines("9" * 5000)), "a line's hits is '999"),
    "xml-no-number": ("cobertura", xml_report(lines='<line hits="1"/>'), "<line> has no number"),
    "xml-no-filename": ("cobertura", xml_report(filename=""), "<class> has no filename"),
    "xml-outside": ("cobertura", xml_report(filename="../../x.py"), "it counts the file '../../x.py'"),
    "xml-source-outside": ("cobertura", xml_report(source="/usr/lib"), "it counts the file 'a.py'"),
    "xml-deep": ("cobertura", b"<coverage>" * 1000, "levels of elements"),
    "xml-many-sources": (
        "cobertura",
        b"<coverage><sources>" + b"<source>a</source>" * 101,
        "more than 100 sources",
    ),
    "xml-encoding": ("cobertura", b'<?xml version="1.0" encoding="nonsense"?><coverage/>', "not well-formed"),
    "xml-multibyte": (
        "cobertura",
        b'<?xml version="1.0" encoding="shift_jis"?><coverage/>',
        "not well-formed",
    ),
    "xml-entity": ("cobertura", xml_report('line-rate="&x;"', head=ENTITY), "declares a DTD or entities"),
    "xml-external-entity": (
        "cobertura",
        xml_report(source="&x;", head=EXTERNAL),
        "declares a DTD or entities",
    ),
    "xml-entity-bomb": ("cobertura", xml_report(source="&i;", head=BOMB), "declares a DTD or entities"),
    "xml-undeclared-entity": ("cobertura", xml_report(source="&x;"), "not well-formed"),
    "xml-doctype-other": ("cobertura", xml_report(head="<!DOCTYPE html>"), "declares a DTD or entities"),
    "xml-doctype-subset": (
        "cobertura",
        xml_report(head="<!DOCTYPE coverage []>"),
        "declares a DTD or entities",
    ),
    "lcov-not-lcov": ("lcov", b'{"a": 1}', "a line '{\"a\": 1}'"),
    "lcov-latin-1": ("lcov", b"SF:caf\xe9\n", "byte 6 is not UTF-8"),
    "lcov-no-records": ("lcov", b"TN:test\n", "no lines at all"),
    "lcov-zero": ("lcov", lcov_report("", "LF:0\nLH:0\n"), "no lines at all"),
    "lcov-zero-contradicted": (
        "lcov",
        lcov_report(sums="LF:0\nLH:0\n"),
        "LF of 'src/a.c' is 0, its lines say 3",
    ),
    "lcov-sums-without-lines": ("lcov", lcov_report(""), "LF of 'src/a.c' is 3, its lines say 0"),
    "lcov-hits-sum": ("lcov", lcov_report(sums="LF:3\nLH:3\n"), "LH of 'src/a.c' is 3, its lines say 2"),
    "lcov-truncated": ("lcov", lcov_report()[:-15], "has no end_of_record"),
    "lcov-cut-in-a-line": ("lcov", lcov_report()[:-3], "a line 'end_of_reco'"),
    "lcov-nested": ("lcov", lcov_report(sums="SF:src/b.c\n"), "a second SF"),
    "lcov-line-first": ("lcov", b"DA:1,1\nend_of_record\n", "before any SF"),
    "lcov-end-first": ("lcov", b"end_of_record\n", "before any SF"),
    "lcov-negative": ("lcov", lcov_report("DA:1,-1\n", ""), "a line's hits is '-1'"),
    "lcov-nan": ("lcov", lcov_report("DA:1,NaN\n", ""), "a line's hits is 'NaN'"),
    "lcov-float": ("lcov", lcov_report("DA:1,1.5\n", ""), "a line's hits is '1.5'"),
    "lcov-no-hits": ("lcov", lcov_report("DA:1\n", ""), "DA:<line>,<hits>"),
    "lcov-lf-text": ("lcov", lcov_report(sums="LF:three\n"), "LF is 'three'"),
    "lcov-outside": ("lcov", lcov_report(source="../b.c"), "it counts the file '../b.c'"),
    "lcov-absolute": ("lcov", lcov_report(source="/usr/include/stdio.h"), "it counts the file"),
    "lcov-many-files": (
        "lcov",
        b"".join(b"SF:%d\nend_of_record\n" % number for number in range(200_001)),
        "more than 200000 files",
    ),
    "lcov-no-source": ("lcov", lcov_report(source=""), "it counts the file ''"),
}


@pytest.mark.parametrize(("format", "data", "message"), BAD.values(), ids=BAD.keys())
def test_coverage_input_table(
    format: str, data: bytes, message: str, put: Callable[[bytes], Path], tmp_path: Path
) -> None:
    with pytest.raises(MeasurementFailed) as failed:
        read_coverage(put(data), format, root=tmp_path, newer_than=None)
    assert message in str(failed.value)
    assert "Coverage report report: " in str(failed.value) and "the baseline stays as it is" in str(
        failed.value
    )


@pytest.mark.parametrize("format", FORMATS)
class TestTheFile:
    """What kind of file is read at all; the same for every format."""

    def refusal(self, path: Path | str, format: str, root: Path, newer_than: float | None = None) -> str:
        with pytest.raises(MeasurementFailed) as failed:
            read_coverage(Path(path), format, root=root, newer_than=newer_than)
        return str(failed.value)

    def test_missing(self, format: str, tmp_path: Path) -> None:
        assert "does not exist" in self.refusal("none", format, tmp_path)
        assert "does not exist" in self.refusal("no/folder/none", format, tmp_path)
        assert "does not exist" in self.refusal("none", format, tmp_path / "no-checkout")

    def test_empty(self, format: str, tmp_path: Path) -> None:
        (tmp_path / "r").touch()
        assert "it is empty" in self.refusal("r", format, tmp_path)

    def test_too_large(self, format: str, tmp_path: Path) -> None:
        (tmp_path / "r").touch()
        os.truncate(tmp_path / "r", MAX_BYTES + 1)
        assert "expected at most" in self.refusal("r", format, tmp_path)

    def test_symbolic_links(self, format: str, tmp_path: Path) -> None:
        checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
        checkout.mkdir()
        elsewhere.mkdir()
        (elsewhere / "r").write_bytes(GOOD[format])
        (checkout / "link").symlink_to(elsewhere / "r")
        (checkout / "folder").symlink_to(elsewhere)
        (checkout / "own").write_bytes(GOOD[format])
        (checkout / "inner").symlink_to("own")
        for path in ("link", "folder/r", "inner"):
            assert "without symbolic links" in self.refusal(path, format, checkout)
        assert read_coverage(Path("own"), format, root=checkout, newer_than=None).total > 0

    def test_paths_out_of_the_checkout(self, format: str, tmp_path: Path) -> None:
        checkout = tmp_path / "checkout"
        checkout.mkdir()
        (tmp_path / "r").write_bytes(GOOD[format])
        assert "without `..`" in self.refusal("../r", format, checkout)
        assert "without `..`" in self.refusal(checkout / ".." / "r", format, checkout)
        assert "outside the checkout" in self.refusal(tmp_path / "r", format, checkout)
        assert "names no file" in self.refusal(".", format, checkout)

    def test_what_is_no_file(self, format: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "folder").mkdir()
        assert "not a regular file" in self.refusal("pipe", format, tmp_path)
        assert "not a regular file" in self.refusal("folder", format, tmp_path)
        (tmp_path / "r").write_bytes(GOOD[format])
        assert "cannot be opened" in self.refusal("r/r", format, tmp_path)

    def test_older_than_the_run(self, format: str, tmp_path: Path) -> None:
        report = tmp_path / "r"
        report.write_bytes(GOOD[format])
        os.utime(report, (1000.0, 1000.0))
        for now in (1000.001, math.inf, math.nan):
            assert "older than the run" in self.refusal(report, format, tmp_path, now)
        assert read_coverage(report, format, root=tmp_path, newer_than=1000.0).total > 0

    def test_absolute_names_of_the_checkouts_own_files(self, format: str, tmp_path: Path) -> None:
        data = GOOD[format].replace(b"src/a", str(tmp_path / "src/a").encode())
        data = data.replace(b"<source>src<", f"<source>{tmp_path}/src<".encode())
        (tmp_path / "r").write_bytes(data)
        link = tmp_path.with_name(tmp_path.name + "-link")
        link.symlink_to(tmp_path)
        for root in (tmp_path, link):
            assert read_coverage(Path("r"), format, root=root, newer_than=None).total > 0


def test_an_unknown_format_is_the_configurations_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'cobertura'"):
        read_coverage(Path("r"), "corbetura", root=tmp_path, newer_than=None)


def test_a_relative_root_does_not_let_files_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r").write_bytes(lcov_report(source="../b.c"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MeasurementFailed, match="it counts the file"):
        read_coverage(Path("r"), "lcov", root=Path("."), newer_than=None)


def test_classes_that_share_a_file_may_be_added_up(tmp_path: Path) -> None:
    # Java writes inner classes beside outer ones; some programs count such lines twice, some once.
    both = (
        b'<class filename="a.py"><lines><line number="1" hits="1"/><line number="2" hits="0"/></lines></class>'
        b'<class filename="a.py"><lines><line number="2" hits="1"/></lines></class>'
    )
    for totals, expected in ((b"2/3", Coverage(2, 3, 66.66)), (b"2/2", Coverage(2, 2, 100.0))):
        covered, valid = totals.split(b"/")
        rate = str(int(covered) / int(valid)).encode()
        data = b'<coverage lines-covered="%s" lines-valid="%s" line-rate="%s">' % (covered, valid, rate)
        data += b"<packages><package><classes>" + both + b"</classes></package></packages></coverage>"
        assert FORMATS["cobertura"](data, report="r", root=tmp_path) == expected


@given(st.integers(0, 10**12), st.integers(1, 10**12))
def test_percent_never_rounds_up(covered: int, total: int) -> None:
    if covered > total:
        with pytest.raises(MeasurementFailed):
            measured(covered, total, report="r")
        return
    percent = measured(covered, total, report="r").percent
    assert 0 <= percent <= 100
    assert round(percent * 100) * total <= covered * 10_000 < (round(percent * 100) + 1) * total


def sane(format: str, data: bytes) -> None:
    try:
        result = FORMATS[format](data, report="r", root=ROOT)
    except MeasurementFailed:
        return
    assert 0 <= result.covered <= result.total and result.total > 0 and 0 <= result.percent <= 100


PIECES = (
    b"""<coverage | line-rate="1"| lines-valid="1"| lines-covered="1"|>|/>|<packages>|<package>|<classes>|"""
    b"""<class filename="a">|<lines>|<line number="1" hits="1"/>|</lines>|</class>|</classes>|</package>|</packages>|"""
    b"""</coverage>|<!DOCTYPE coverage [|]>|&x;|<![CDATA[|<?xml version='1.0' encoding='|utf-16|'?>|SF:a\n|DA:1,1\n|"""
    b"""LF:|LH:1\n|end_of_record\n|\0|{|}|"totals":|"files":|"summary":|1|e9|NaN|,|[|]|"|\xff|\\ud800"""
).split(b"|")


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)))
def test_arbitrary_bytes_are_refused_or_sane(format: str, data: bytes) -> None:
    sane(format, data)


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
def test_a_damaged_report_is_refused_or_sane(format: str, data: st.DataObject) -> None:
    good = GOOD[format]
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, len(good)))
    sane(format, good[:start] + data.draw(st.binary(max_size=8)) + good[end:])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 20) | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["summary", "covered_lines", "num_statements", "percent_covered"]), inner
        )
    ),
    max_leaves=8,
)


@given(JSON, JSON, st.text(max_size=5), JSON)
def test_json_of_any_shape_is_refused_or_sane(files: Any, totals: Any, name: str, branch: Any) -> None:
    document = {"meta": {"branch_coverage": branch}, "files": {name: files}, "totals": totals}
    sane("coverage.py", json.dumps(document).encode())
    sane("coverage.py", json.dumps(files).encode())
