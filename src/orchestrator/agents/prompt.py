"""The prompt of a role: a Jinja2 template, ours or the repository's own, rendered in a sandbox.

What must hold: the ticket is a value, so that nothing in it is ever a template; it stands between two fences
that its author cannot have written, for their name is drawn from a digest of the text itself. A template may
``include`` our parts (``_facts.md``, ``_ticket.md``, ``_findings.md``, ``_documents.md``, ``_rules.md``).
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import ChoiceLoader, FunctionLoader, StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from orchestrator.agents.brief import Brief, write_brief_file
from orchestrator.agents.document_forms import BAD, COMMITTED_BY_AGENT, GOOD, Form, expected, front_matter
from orchestrator.domain.errors import ConfigError
from orchestrator.runtime.files import replace_durably

PROMPT_FILE = "prompt.md"
LANGUAGES = ("en", "ru")
MAX_BODY = 200_000  # characters of ticket text; what is beyond is cut and said to be
FENCE_DIGITS = 16


@dataclass(frozen=True, slots=True)
class BriefFiles:
    """Where a brief was written."""

    brief_file: Path
    prompt_file: Path


def write_brief(brief: Brief, run_dir: Path, template: str | None = None) -> BriefFiles:
    """Write ``brief.json`` and ``prompt.md`` (both 0600) into the run folder, which is made if need be.

    :param template: the repository's own template text, instead of ours.
    :raises ConfigError: the repository's template cannot be rendered.
    :raises OSError: the folder cannot be written.
    """
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    prompt = render_prompt(brief, template)
    brief_file = write_brief_file(brief, run_dir)
    replace_durably(run_dir / PROMPT_FILE, prompt.encode(errors="replace"))
    return BriefFiles(brief_file, run_dir / PROMPT_FILE)


def render_prompt(brief: Brief, template: str | None = None) -> str:
    """The prompt's text.

    :raises ConfigError: the repository's template cannot be rendered.
    """
    language = brief.language if brief.language in LANGUAGES else LANGUAGES[0]
    environment = SandboxedEnvironment(
        loader=ChoiceLoader([FunctionLoader(lambda name: template_text(language, name))]),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    try:
        chosen = (
            environment.from_string(template)
            if template is not None
            else environment.get_template(f"{brief.role.value}.md")
        )
        return chosen.render(_values(brief))
    except (TemplateError, ArithmeticError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"The prompt template for the {brief.role.value} cannot be rendered: {error}. The task waits.",
            hint="Correct the template that `prompt` in .orchestrator.toml names, then retry the task.",
        ) from error


def template_text(language: str, name: str) -> str | None:
    """One of our templates; None where there is none by that name."""
    if "/" in name or not name.endswith(".md"):
        return None
    place = files("orchestrator.agents") / "prompts" / language / name
    return place.read_text(encoding="utf-8") if place.is_file() else None


def printable(text: str) -> str:
    """Text of a stranger without control characters (terminal codes, NUL); line ends and tabs stay."""
    return "".join(char for char in text.replace("\r\n", "\n") if char in "\n\t" or char.isprintable())


def fence(text: str) -> str:
    """A word that the text does not hold, and that nobody could have put into it."""
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return f"TICKET-{digest[:FENCE_DIGITS]}"


def _values(brief: Brief) -> dict[str, object]:
    title, body = " ".join(printable(brief.title).split()), printable(brief.body)
    if len(body) > MAX_BODY:
        body = body[:MAX_BODY] + f"\n[... {len(body) - MAX_BODY} characters left out ...]"
    ticket = f"{title}\n\n{body}".strip()
    return {
        "brief": brief,
        "ticket": ticket,
        "fence": fence(ticket),
        "title": title,
        "findings": [printable(str(finding)) for finding in brief.findings],
        "notes": printable(brief.notes),
        "documents": [
            {
                "name": name,
                "path": f"{brief.folder}/{name}",
                "front_matter": front_matter(name, brief, _blank(brief)),
            }
            for name in expected(brief)
        ],
        "commits": brief.role in COMMITTED_BY_AGENT,
        "good": GOOD.get(brief.role, ""),
        "bad": BAD.get(brief.role, ""),
    }


def _blank(brief: Brief) -> Form:
    good, bad = GOOD.get(brief.role), BAD.get(brief.role)
    verdict = f"<{good} or {bad}>" if good else None
    return Form(
        "<in short>", "final", "<full or fast>", verdict, (("TC-01", "<pass, fail, skipped or blocked>"),)
    )
