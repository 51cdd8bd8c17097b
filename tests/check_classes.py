#!/usr/bin/env python3
"""Fails for a class of src/ or plugins/ with more than 40 functions or 30 data members whose comment does not say why.

The comment directly above the class, or the one at the head of its file, then has "More than 40 functions:" or "More than 30
members:", and the reason. Counted is what the class itself declares: overloads one by one, constants and nested types not (those are
counted by themselves). It is a reading by rules of thumb, made for the style of these sources.

Usage: check_classes.py <repository root> [-v] | --self-test
"""
import pathlib
import re
import sys

MOST = {"functions": 40, "members": 30}

CLASS = re.compile(r"(?<!enum )\b(?:class|struct|union)\s+(?:\[\[\w+\]\]\s*|alignas\([^)]*\)\s*|TCPX_\w+(?:\([^)]*\))?\s+)*"
                   r"([\w:]+(?:<[^{;]*>)?)\s*(?:final\s*)?(?::[^{;]*)?\{")
NESTED_TYPE = re.compile(r"(?:class|struct|union)\b.*\{")
NO_MEMBER = re.compile(r"(?:using|typedef|friend|enum|class|struct|union|static_assert)\b|(?:inline )?static const(?:expr)? ")


def without_comments(text):
    """The same with its lines where they were, but without comments, texts and the preprocessor's lines."""
    blank = lambda match: "\n" * match.group().count("\n")
    for pattern in (r"/\*.*?\*/", r"//[^\n]*", r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"):
        text = re.sub(pattern, blank, text, flags=re.S | re.M)
    return re.sub(r"'(?:\\.|[^'\\])'", "0", re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text))


def body_at(text, begin):
    """What stands in the braces that open before `begin`."""
    depth = 1
    for end in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin:end]
    return text[begin:]


def without_pairs(text, *pairs):
    """The same without what stands in such brackets."""
    for left, right in pairs:
        inner = re.compile(rf"\{left}[^\{left}\{right}]*\{right}")
        while text != (shorter := inner.sub("", text)):
            text = shorter
    return text


def declarations(body):
    """Cuts a class's body where a declaration ends: at a semicolon, or behind a function's braces."""
    depth, begin = 0, 0
    for at, char in enumerate(body):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(char, 0)
        behind_braces = char == "}" and body[at + 1:].lstrip()[:1] not in (";", ",", "{")
        if depth == 0 and (char == ";" or behind_braces):
            text = re.sub(r"\b(?:public|private|protected)\s*:", "", body[begin:at + 1])
            text = " ".join(text.rstrip(";").split())
            begin = at + 1
            if text:
                yield re.sub(r"^template <.*?> (?=[\w~])", "", text)


def count(body):
    counts = {"functions": 0, "members": 0}
    for text in declarations(body):
        if NESTED_TYPE.match(text):
            counts["members"] += bool(re.search(r"\}\s*\w", text))  # a member of a type without a name
            continue
        if NO_MEMBER.match(text):
            continue
        text = re.sub(r"\b(?:TCPX_\w+|alignas)\([^)]*\)", "", text)
        head = without_pairs(re.split(r"[={]", text)[0], "<>")
        if "operator" in text.split("(")[0] or "(" in head and "(*" not in head:
            counts["functions"] += 1
        else:
            counts["members"] += without_pairs(text, "<>", "()", "{}").count(",") + 1
    return counts


def comment_above(lines, line):
    """The comment that ends above this line, as one line; `template <...>` may stand between."""
    while line > 0 and lines[line - 1].lstrip().startswith("template"):
        line -= 1
    comment = []
    while line > 0 and lines[line - 1].lstrip().startswith("//"):
        line -= 1
        comment.insert(0, lines[line].strip(" /"))
    return " ".join(comment)


def head_comment(lines):
    return comment_above(lines, next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines)))


def classes(text):
    """Yields (name, comments that may say why, counts)."""
    code, lines = without_comments(text), text.splitlines()
    for match in CLASS.finditer(code):
        comments = comment_above(lines, code.count("\n", 0, match.start())) + " " + head_comment(lines)
        yield match.group(1), comments, count(body_at(code, match.end()))


def check_file(text):
    """Yields (class, how many of what, whether that is a problem, and which)."""
    above = set()
    for name, comments, counts in classes(text):
        for what, most in MOST.items():
            if counts[what] <= most:
                continue
            above.add(what)
            phrase = f"More than {most} {what}:"
            reason = re.search(rf"{phrase}\s+\S", comments)
            yield name, f"{counts[what]} {what}", None if reason else f'no comment above it says "{phrase}" and why'
    for what, most in MOST.items():
        if what not in above and f"More than {most} {what}:" in text:
            yield "a comment", f"speaks of {what}", "no class here has that many"


def check_tree(root):
    found, files = [], 0
    for folder in ("src", "plugins"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh"):
                files += 1
                found += [(path, *row) for row in check_file(path.read_text(errors="replace"))]
    return found, files


SNIPPET = """
// What it is.
// More than 2 functions: they are one line each.
template <class T>
class TCPX_LOCKABLE Example final : public Base<int>, private Other {
 public:
  enum class State { kOne, kTwo, kThree };
  Example(int a, int b = 3) : a_{a}, b_(b) { f(); }
  ~Example() override;  // one more; and (not) another
  Example& operator=(const Example&) = delete;
  explicit operator bool() const { return a_ > 0; }
  template <class F>
  void each(F&& f) { for (;;) f(";"); }
  [[nodiscard]] std::map<int, std::function<void(int)>> get() const TCPX_REQUIRES(mu_);
  static constexpr int kNone = -1;

 private:
  struct Part {
    int x = 0, y;
    std::array<int, 3> z{}, more{};
    void (*call)(int);
  };
  using Parts = std::vector<Part>;
  friend class Other;
  int a_, b_ = 2;
  std::function<bool(Part)> asks_ = [] { return true; };
  std::map<int, std::pair<int, Part>> parts_ TCPX_GUARDED_BY(mu_){};
  alignas(64) std::atomic<int> count_{0};
};
"""
COUNTED = [("Example", {"functions": 6, "members": 5}), ("Part", {"functions": 0, "members": 5})]


def self_test():
    counted = [(name, counts) for name, _, counts in classes(SNIPPET)]
    if counted != COUNTED:
        sys.exit(f"self-test: counted {counted}, not {COUNTED}")
    named = SNIPPET.replace("than 2", "than 40").replace("each(", "each();" + "void g();" * 36 + "void h(")
    cases = [(SNIPPET, 0, 0), (named, 1, 0), (named.replace("functions:", "functions"), 1, 1),
             (named.replace(" they are one line each.", ""), 1, 1), (named.replace("// What it is.\n", "\n"), 1, 0),
             ("// More than 40 functions: why.\n#pragma once\n" + named.replace("More", "No more"), 1, 0),
             ("// More than 30 members: many.\n", 1, 1),
             ("struct Long {\n" + "".join(f"  int a{i} = {i};\n" for i in range(31)) + "};\n", 1, 1)]
    for number, (text, found, bad) in enumerate(cases):
        rows = list(check_file(text))
        if (len(rows), sum(row[2] is not None for row in rows)) != (found, bad):
            sys.exit(f"self-test: case {number}: {found} found and {bad} bad expected, got {rows}")
    print(f"self-test: {len(cases)} cases right")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found, files = check_tree(pathlib.Path(sys.argv[1]))
    if files == 0:
        sys.exit(f"no sources under {sys.argv[1]}: wrong directory?")
    bad = [row for row in found if row[3] is not None]
    for path, name, counted, problem in found if "-v" in sys.argv else bad:
        print(f"{path}: {name}: {counted}: {problem or 'its comment says why'}")
    if bad:
        sys.exit(1)
    print(f"the classes of {files} files are small, or say why not ({len(found)})")


if __name__ == "__main__":
    main()
