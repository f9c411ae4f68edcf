"""One body beside another: has it all that the other has, as the same kind of value?"""

from typing import Any


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def lacks(real: Any, ours: Any, at: str = "") -> list[str]:
    """What the real body has and ours has not, or has as another kind of value; null may stand for anything."""
    if "NoneType" in (real, ours) or [] in (real, ours):
        return []
    if isinstance(real, dict) and isinstance(ours, dict):
        missing = [f"{at}.{name} is missing" for name in real.keys() - ours.keys()]
        both = real.keys() & ours.keys()
        return missing + [wrong for name in both for wrong in lacks(real[name], ours[name], f"{at}.{name}")]
    if isinstance(real, list) and isinstance(ours, list):
        return lacks(real[0], ours[0], f"{at}[]")
    return [] if real == ours else [f"{at}: {real} there, {ours} here"]
