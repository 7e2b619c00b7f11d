"""A cron expression written back from its masks: one text for all ways of writing the same schedule."""

from __future__ import annotations

from detent.domain.schedule.cron_fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, YEAR, CronField, FieldSpec
from detent.domain.schedule.cron_parse import CronFields


def canonical_cron(fields: CronFields) -> str:
    """The unix dialect, with numbers for names and `H` already resolved."""
    parts = [
        _field_text(fields.minute, MINUTE),
        _field_text(fields.hour, HOUR),
        _field_text(fields.day, DAY),
        _field_text(fields.month, MONTH),
        _field_text(fields.weekday, WEEKDAY),
    ]
    if fields.second.mask != 1 or fields.year is not None:
        parts.insert(0, _field_text(fields.second, SECOND))
    if fields.year is not None:
        parts.append(_field_text(fields.year, YEAR))
    return " ".join(parts)


def _field_text(field: CronField, spec: FieldSpec) -> str:
    if not field.text:
        field.text = _write_field(field, spec)
    return field.text


def _write_field(field: CronField, spec: FieldSpec) -> str:
    if field.open or (field.star and field.mask == _whole(spec)):
        return "*"
    base = spec.low if spec is YEAR else 0
    values = [base + bit for bit in range(field.mask.bit_length()) if field.mask >> bit & 1]
    items = []
    if field.star:
        step = _star_step(values, spec)
        items.append("*" if step == 1 else f"*/{step}")
        values = [value for value in values if (value - spec.low) % step]
    items += _ranges(values)
    items += [f"L-{back}" if back else "L" for back in sorted(field.last_offsets)]
    items += [f"{day}W" for day in sorted(field.workdays)]
    items += [f"L-{back}W" if back else "LW" for back in sorted(field.last_workday_offsets)]
    items += [f"{day}#{number}" if number else f"{day}L" for day, number in sorted(field.nth)]
    return ",".join(items)


def _whole(spec: FieldSpec) -> int:
    high = 6 if spec is WEEKDAY else spec.high
    if spec is YEAR:
        return (1 << (spec.high - spec.low + 1)) - 1
    return (2 << high) - (1 << spec.low)


def _star_step(values: list[int], spec: FieldSpec) -> int:
    """The finest `*/n` whose every value is there; a field with a star always has one."""
    high = 6 if spec is WEEKDAY else spec.high
    present = set(values)
    return next(step for step in range(1, high - spec.low + 1) if present.issuperset(range(spec.low, high + 1, step)))


def _ranges(values: list[int]) -> list[str]:
    """Runs of three and more as `a-b`, the rest one by one."""
    items: list[str] = []
    index = 0
    while index < len(values):
        end = index
        while end + 1 < len(values) and values[end + 1] == values[end] + 1:
            end += 1
        if end - index >= 2:
            items.append(f"{values[index]}-{values[end]}")
        else:
            items.extend(str(value) for value in values[index : end + 1])
        index = end + 1
    return items
