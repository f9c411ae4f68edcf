"""Judges whether database and forge belong together (DESIGN §6, "Restored or cloned")."""

from orchestrator.domain.installation import Cause, Finding, InstallationMark, Known, Seen

RESTORED = "restored"  # the signal by which a person's acceptance reaches each unfinished task


def judge(known: Known, seen: Seen) -> Finding | None:
    """Why the repository stays closed; None where this database may claim it.

    A start of our own that the database has remembered but not yet seen claimed is a plain crash, not a restore. What
    shows a restored database comes first: it closes every repository.
    """
    for judged in (_database(known, seen), _stranger(known, seen.mark), _forge(known, seen)):
        if judged is not None:
            return judged
    return None


def _database(known: Known, seen: Seen) -> Finding | None:
    mark = seen.mark
    if mark is not None and mark.installation == known.installation and not _ours(known, mark):
        return Finding(
            Cause.DATABASE,
            f"{known.repo} was last claimed by start {mark.generation} of this database, of which it knows nothing "
            f"(its own last one was {known.generation}): it was restored from a backup, or it is one of two copies",
        )
    if seen.unknown:
        newest = seen.unknown[-1]
        return Finding(
            Cause.DATABASE,
            f"main of {known.repo} has the merge {newest.sha[:12]} of {newest.work_item}, which this database made and "
            "does not know: it was restored from a backup, or it is one of two copies",
        )
    if seen.fence > known.sequence:
        return Finding(
            Cause.DATABASE,
            f"a fence of {known.repo} stands at {seen.fence}, above the ledger's last number {known.sequence}: "
            "the database was restored from a backup, or it is one of two copies",
        )
    return None


def _stranger(known: Known, mark: InstallationMark | None) -> Finding | None:
    if mark is None or mark.installation == known.installation:
        return None
    return Finding(
        Cause.STRANGER,
        f"{known.repo} is claimed by another database (installation {mark.installation[:12]}, start {mark.generation})",
    )


def _forge(known: Known, seen: Seen) -> Finding | None:
    if seen.mark is None and known.generation:
        return Finding(
            Cause.FORGE,
            f"the forge of {known.repo} has lost the mark of start {known.generation}: it was restored from a backup, "
            "or made anew",
        )
    if seen.mark is not None and seen.mark.generation < known.generation:
        return Finding(
            Cause.FORGE,
            f"the forge of {known.repo} stands at start {seen.mark.generation}, this database at {known.generation}: "
            "the forge was restored from a backup",
        )
    if seen.lost:
        merged = (known.merged or "")[:12]
        return Finding(
            Cause.FORGE,
            f"main of {known.repo} has lost the merge {merged}: the forge was restored from a backup, or main was "
            "rewritten",
        )
    return None


def _ours(known: Known, mark: InstallationMark) -> bool:
    return mark.start_id == known.start_id or mark.start_id in known.starts
