"""Compares two runs of Python's own tests: compare.py UNMOVED.xml MOVED.xml (of `python3 -m test --junit-xml`).

Says how many test cases there were, and each whose result differs: ok, failure, error, skipped, or missing.
"""

import sys
import xml.etree.ElementTree as ElementTree


def results(path):
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return {}
    found = {}
    for case in root.iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        last = [child.text or "" for child in case if child.tag in ("failure", "error")]
        # A test case that is in several classes has several names; one that is run twice counts as its worst.
        name = case.get("name")
        if name not in found or kinds:
            found[name] = (kinds[0] if kinds else "ok", last[0].strip().splitlines()[-1:] if last else [])
    return found


def main():
    unmoved, moved = results(sys.argv[1]), results(sys.argv[2])
    differ = [name for name in sorted(unmoved.keys() | moved.keys())
              if unmoved.get(name, ("missing",))[0] != moved.get(name, ("missing",))[0]]
    print(f"{len(unmoved)} cases unmoved, {len(moved)} moved, {len(differ)} differ")
    for name in differ:
        was, (now, *said) = unmoved.get(name, ("missing",))[0], moved.get(name, ("missing", []))
        print(f"  {name}: {was}, moved {now}", *[text for lines in said for text in lines])


main()
