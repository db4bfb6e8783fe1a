"""The rules of this house that no linter knows: each test reads the source and names the place that breaks one."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import django
import pytest
from babel.messages.pofile import read_po
from django.apps import apps

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGES = ("console", "training", "registry", "edge", "tests")
LONGEST_MODULE = 500


def sources(*folders: str, suffix: str = ".py") -> list[Path]:
    """Tracked and new files below these folders; migrations are generated and left out."""
    found = [path for folder in folders for path in sorted((CHECKOUT / folder).rglob(f"*{suffix}"))]
    return [path for path in found if "migrations" not in path.parts and "build" not in path.parts]


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True).stdout
    return [CHECKOUT / name for name in listed.decode().split("\0") if name and (CHECKOUT / name).is_file()]


def name(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def trees(*folders: str) -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in sources(*folders)]


def stateful_models() -> list[type]:
    django.setup()
    return [model for model in apps.get_models() if hasattr(model, "MOVES")]


def test_every_module_opens_with_a_charter() -> None:
    silent = [name(path) for path, tree in trees(*PACKAGES) if tree.body and not ast.get_docstring(tree)]
    assert silent == []


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_modules_stay_small() -> None:
    long = {name(path): count for path in sources(*PACKAGES) if (count := _lines(path)) > LONGEST_MODULE}
    for models in ("registry/models.py", "training/models.py"):  # one table of all rows reads better than five
        long.pop(models, None)
    assert long == {}


def test_no_model_signals_and_no_save_overrides() -> None:
    guilty = []
    for path, tree in trees("console", "training", "registry"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django.db.models.signals"):
                guilty.append(name(path))
            if (
                path.name == "models.py"
                and isinstance(node, ast.ClassDef)
                and any(isinstance(part, ast.FunctionDef) and part.name in {"save", "delete"} for part in node.body)
            ):
                guilty.append(f"{name(path)}:{node.name}")
    assert guilty == []


def test_only_lifecycle_changes_a_state() -> None:
    guilty = []
    for path, tree in trees("console", "training", "registry"):
        if name(path) == "registry/lifecycle.py" or "sample" in path.parts:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                guilty += [
                    f"{name(path)}:{node.lineno}"
                    for target in targets
                    if isinstance(target, ast.Attribute) and target.attr == "state" and not _is_self(target.value)
                ]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
                guilty += [f"{name(path)}:{node.lineno}" for word in node.keywords if word.arg == "state"]
    assert guilty == []


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "self"


def test_every_state_is_in_its_moves_table_and_every_target_is_a_state() -> None:
    for model in stateful_models():
        states = {choice.value for choice in model.State}
        assert set(model.MOVES) == states, model.__name__
        assert {to for targets in model.MOVES.values() for to in targets} <= states, model.__name__


@pytest.mark.parametrize(
    "pattern",
    [
        r"\bpickle\.loads?\(",
        r"\bcloudpickle\b",
        r"allow_pickle=True",
        r"shell=True",
        r"verify=False",
        r"weights_only=False",
    ],
)
def test_nothing_unpickles_or_opens_a_shell(pattern: str) -> None:
    guilty = [
        name(path)
        for path in sources("console", "training", "registry", "edge")
        if re.search(pattern, path.read_text())
    ]
    assert guilty == []


def test_torch_load_is_only_called_with_weights_only() -> None:
    for path, tree in trees("training"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                words = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert words.get("weights_only") == "True", f"{name(path)}:{node.lineno}"


def test_every_dependency_says_why_it_is_there() -> None:
    for file in (CHECKOUT / "pyproject.toml", CHECKOUT / "edge" / "pyproject.toml"):
        text = file.read_text()
        project = tomllib.loads(text)["project"]
        wanted = [*project.get("dependencies", [])]
        for extra in project.get("optional-dependencies", {}).values():
            wanted += [line for line in extra if not line.startswith("loopline[")]
        lines = text.splitlines()
        for requirement in wanted:
            line = next(line for line in lines if line.strip().startswith(f'"{requirement}"'))
            assert "#" in line, f"{file.name}: {requirement} has no reason"


def test_templates_hold_no_inline_style_script_or_handler() -> None:
    forbidden = {
        "style attribute": r"<[^>]*\sstyle\s*=",
        "style element": r"<style",
        "inline script": r"<script(?![^>]*\bsrc=)(?![^>]*type=\"application/json\")",
        "event attribute": r"<[^>]*\son[a-z]+\s*=",
        "hx-on": r"hx-on",
        "other host": r"(?:src|href|action)\s*=\s*[\"'](?:https?:)?//",
    }
    guilty = [
        f"{name(path)}: {what}"
        for path in sources("templates", suffix=".html")
        for what, pattern in forbidden.items()
        if re.search(pattern, path.read_text())
    ]
    assert guilty == []


def test_the_project_names_no_machine_and_no_registry() -> None:
    words = [
        r"pypi\.org", r"files\.pythonhosted", r"registry\.npmjs", r"deb\.debian\.org",
        r"/wo" + r"rk/(main|shared)", r"/ro" + r"ot/(?!\.)", r"/tm" + r"p/bash", r"/ro" + r"ot/\.",
    ]  # fmt: skip
    guilty = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        guilty += [f"{name(path)}: {word}" for word in words if re.search(word, text)]
    assert guilty == []


def test_no_large_files_and_no_weights_are_tracked() -> None:
    guilty = [name(path) for path in tracked() if path.stat().st_size > 1_000_000]
    guilty += [
        name(path) for path in tracked() if path.suffix in {".safetensors", ".onnx", ".pt", ".pth", ".pkl", ".bin"}
    ]
    assert guilty == []


def test_every_sentence_has_a_korean_translation() -> None:
    with (CHECKOUT / "locale/ko/LC_MESSAGES/django.po").open("rb") as file:
        catalogue = read_po(file, locale="ko")
    known = {}
    for message in catalogue:
        for key in message.id if isinstance(message.id, tuple) else (message.id,):
            known[key] = message
    wanted = _marked_sentences()
    assert len(wanted) > 100
    missing = sorted(text for text in wanted if text not in known)
    assert missing == []
    unfinished = sorted(
        str(message.id) for message in catalogue if message.id and (message.fuzzy or not all(_texts(message.string)))
    )
    assert unfinished == []
    for message in catalogue:
        if message.id:
            ids = set(re.findall(r"%\((\w+)\)", "".join(_texts(message.id))))
            for text in _texts(message.string):
                assert set(re.findall(r"%\((\w+)\)", text)) <= ids, message.id


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(part) for part in value) if isinstance(value, tuple | list) else (str(value),)


GETTEXT = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext", "ngettext_lazy"}


def _marked_sentences() -> set[str]:
    """Literals given to a gettext function in Python and to translate tags in templates."""
    found: set[str] = set()
    for _, tree in trees("console", "training", "registry"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in GETTEXT and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value:
                    found.add(first.value)
    for path in sources("templates", suffix=".html"):
        text = path.read_text()
        for quote in ('"', "'"):
            pattern = rf"{{%\s*(?:translate|trans)\s+{quote}((?:[^{quote}\\]|\\.)*){quote}"
            found |= {match.group(1) for match in re.finditer(pattern, text)}
    return found
