"""Questions in SQL that people begin with."""

from __future__ import annotations

from splatview_viewer.kinds.snapshot.query import EXAMPLES as _SHORT

EXAMPLES: dict[str, str] = {
    "The largest allocations": """\
SELECT id, size, start_event, end_event, category, own_function, own_file, own_line
FROM allocations LEFT JOIN stacks USING (stack_id)
ORDER BY size DESC
LIMIT 100""",
    **dict(_SHORT),
    "Who is live at the end": """\
SELECT stack_id, count(*) AS blocks, sum(size) AS bytes, any_value(own_function) AS func, any_value(own_file) AS file
FROM allocations LEFT JOIN stacks USING (stack_id)
WHERE end_event IS NULL
GROUP BY stack_id
ORDER BY bytes DESC""",
    "Allocated in the first half, never freed": """\
SELECT id, size, start_event, category, own_function, own_file
FROM allocations LEFT JOIN stacks USING (stack_id)
WHERE end_event IS NULL
  AND start_event < (SELECT max(event) / 2 FROM events)
ORDER BY size DESC""",
    "Shortest lives": """\
SELECT id, size, lifetime_us, start_event, category, stack_id
FROM allocations
WHERE lifetime_us IS NOT NULL
ORDER BY lifetime_us, size DESC
LIMIT 500""",
    "Which stack allocates most often": """\
SELECT stack_id, count(*) AS times, sum(size) AS bytes, any_value(own_function) AS func, any_value(own_file) AS file
FROM allocations LEFT JOIN stacks USING (stack_id)
WHERE start_event IS NOT NULL
GROUP BY stack_id
ORDER BY times DESC
LIMIT 200""",
    "Bytes at the peak by category": """\
SELECT device, category, count(*) AS blocks, sum(size) AS bytes
FROM live_at(peak())
GROUP BY ALL
ORDER BY bytes DESC""",
    "Live bytes at the end by stream and pool": """\
SELECT device, stream, pool, count(*) AS blocks, sum(size) AS bytes
FROM allocations
WHERE end_event IS NULL
GROUP BY ALL
ORDER BY bytes DESC""",
    "What each kind of event does": """\
SELECT device, action, count(*) AS events, sum(size) AS bytes
FROM events
GROUP BY ALL
ORDER BY device, events DESC""",
    "Largest free blocks inside segments": """\
SELECT device, segment, addr, size, state
FROM blocks
WHERE state = 'inactive'
ORDER BY size DESC
LIMIT 100""",
}
"""What it answers: the query."""
