"""Makes the sample plant once: site, line, stations, defect book, people, past captures with decisions, golden sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.models import Membership, User
from console.sample import cells as sample_cells
from console.sample.cells import CREDIT, STATIONS, WHOLE, Cell, Size
from registry import lines
from registry.models import Line, Site, Station
from training import captures, golden
from training.models import Capture, GoldenSet

LINE = "el-1"
TOGETHER = 50  # past pictures brought in by one transaction
PASSWORD = "loopline-demo"

# username, shown name, roles on the line
PEOPLE = (
    ("haneul", "김하늘", ("engineer",)),
    ("seoyeon", "이서연", ("engineer", "supervisor")),
    ("yuna", "최유나", ("ml_engineer", "adjudicator")),
    ("jihun", "박지훈", ("approver",)),
    ("minsu", "정민수", ("operator",)),
    ("sujin", "한수진", ("administrator", "viewer")),
)
GOLDEN_SETS = (
    ("golden", "마스터 샘플 세트", "golden set", True),
    ("era1", "단결정 셀, 보류분", "mono cells, held out", False),
    ("era2", "다결정 셀, 보류분", "poly cells, held out", False),
)
Say = Callable[[str], None]


def person(username: str) -> User:
    return User.objects.get(username=username)


def line() -> Line:
    return Line.objects.get(code=LINE)


def day_zero() -> datetime:
    """06:00 plant time on the day when the sample plant was made: poly cells arrive from then on."""
    zone = ZoneInfo("Asia/Seoul")
    site = Site.objects.filter(code="changwon").first()
    made = (site.created_at if site else timezone.now()).astimezone(zone)
    return made.replace(hour=6, minute=0, second=0, microsecond=0)


def exists() -> bool:
    """True once `make` has run to its end: the golden sets come last."""
    return GoldenSet.objects.filter(line__code=LINE).count() == len(GOLDEN_SETS)


def begin() -> Line:
    """The line and its people, so that somebody can sign in while the rest is still being made."""
    plant_line = _line()
    _people(plant_line)
    return plant_line


def make(say: Say, size: Size = WHOLE) -> Line:
    """Make what is missing of the sample plant; a second run after a kill goes on where the first one ended."""
    plant_line = begin()
    if not exists():
        cells = sample_cells.load(day_zero=day_zero(), size=size)
        kept = [cell for cell in cells if cell.role != "arrival" and cell.label is not None]
        say(f"importing {len(kept)} labelled pictures of earlier production")
        made = _import(plant_line, kept)
        _golden_sets(plant_line, made)
    return plant_line


def _line() -> Line:
    site, _ = Site.objects.get_or_create(code="changwon", defaults={"name": "창원 1공장", "timezone": "Asia/Seoul"})
    found = Line.objects.filter(code=LINE).first()
    if found:
        return found
    made = lines.create_line(
        site,
        code=LINE,
        name="EL-1 라인",
        product="solar cells",
        escape_limit=0.10,
        audit_rate=0.05,
        credit=CREDIT,
        shifts=[
            {"code": "A", "from": "06:00", "to": "14:00"},
            {"code": "B", "from": "14:00", "to": "22:00"},
            {"code": "C", "from": "22:00", "to": "06:00"},
        ],
        by="set-up",
    )
    lines.add_class(
        made, number=1, code="cell-defect", name_ko="셀 결함", name_en="cell defect", critical=False, by="set-up"
    )
    for code in STATIONS:
        Station.objects.get_or_create(line=made, code=code, defaults={"name": f"EL {code}"})
    return made


def _people(plant_line: Line) -> None:
    for username, shown, roles in PEOPLE:
        user, made = User.objects.get_or_create(username=username, defaults={"display_name": shown})
        if made:
            user.set_password(PASSWORD)
            user.save(update_fields=["password"])
        for role in roles:
            Membership.objects.get_or_create(user=user, line=plant_line, role=role)


def _import(plant_line: Line, cells: Iterable[Cell]) -> dict[str, list[tuple[Capture, int]]]:
    """Captures with their decisions, by role. Two engineers decided them, turn by turn."""
    reviewers = [person("haneul"), person("seoyeon")]
    stations = {station.code: station for station in plant_line.stations.all()}
    made: dict[str, list[tuple[Capture, int]]] = {}
    numbered = list(enumerate(cells))
    for start in range(0, len(numbered), TOGETHER):
        with transaction.atomic():  # a commit for each picture would take as long as the rest of it
            for index, cell in numbered[start : start + TOGETHER]:
                capture, label = _import_one(plant_line, cell, stations, by=reviewers[index % 2])
                made.setdefault(cell.role, []).append((capture, label))
    return made


def _import_one(plant_line: Line, cell: Cell, stations: dict[str, Station], *, by: User) -> tuple[Capture, int]:
    """One past capture with its decision; a second run finds both."""
    meta = {
        "lot": cell.lot,
        "serial": cell.serial,
        "station": stations[cell.station],
        "product": cell.product,
        "shift": cell.shift,
        "taken_at": cell.taken_at,
        "file_name": cell.path.name,
    }
    capture, _ = captures.import_one(plant_line, cell.path, meta, by="set-up")
    label = cell.label or 0
    if capture.state == Capture.State.NEW:
        captures.decide(capture, verdict="NG" if label else "OK", classes=[label] if label else [], by=by)
    return capture, label


def _golden_sets(plant_line: Line, made: dict[str, list[tuple[Capture, int]]]) -> None:
    owner = person("haneul")
    for code, name_ko, name_en, leads in GOLDEN_SETS:
        if not GoldenSet.objects.filter(line=plant_line, code=code).exists():
            golden.create(
                plant_line,
                code=code,
                name_ko=name_ko,
                name_en=name_en,
                captures=made[code],
                owner=owner,
                expires_at=timezone.now() + timedelta(days=180),
                leads=leads,
                by=owner,
            )


def feeds(size: Size = WHOLE) -> dict[str, list[Cell]]:
    """The poly cells that arrive, by station, lot after lot."""
    arriving = [cell for cell in sample_cells.load(day_zero=day_zero(), size=size) if cell.role == "arrival"]
    return {station: [cell for cell in arriving if cell.station == station] for station in STATIONS}


def truth() -> dict[str, int]:
    """Serial -> label of every cell whose truth is not argued about: what the sample plant's reviewers would say."""
    return {cell.serial: cell.label for cell in sample_cells.load(day_zero=day_zero()) if cell.label is not None}


def state_folder(name: str) -> str:
    """Where the home of a simulated device lies."""
    return str(settings.STATE / "devices" / name)
