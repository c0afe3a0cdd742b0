"""Where the time of an image goes, from the gateway's own metrics."""

import httpx

NAME = "diptych_phase_seconds_sum"


def phases(url: str) -> dict[str, float]:
    """Seconds spent so far in each phase, over all images; empty for a server that does not count phases."""
    try:
        text = httpx.get(f"{url}/metrics", timeout=10).text
    except httpx.TransportError:
        return {}
    found = {}
    for line in text.splitlines():
        if line.startswith(NAME + "{"):
            labels, value = line[len(NAME) + 1 :].split("} ")
            found[labels.split('"')[1]] = float(value)
    return found
