"""`diptych wait`: blocks until services are ready, and says what they are doing meanwhile."""

import time

import click
import httpx

POLL = 0.3  # seconds between looks
SAY_AGAIN = 10.0  # seconds after which an unchanged reason is said again


def _state(client: httpx.Client, url: str) -> str:
    """Empty when the service is ready, else why it is not."""
    try:
        reply = client.get(f"{url}/ready")
    except httpx.TransportError:
        return "the process is starting"
    if reply.status_code == httpx.codes.OK:
        return ""
    try:
        body = reply.json()
    except ValueError:
        return f"HTTP {reply.status_code}"
    return str(body.get("reason") or body.get("error", {}).get("message") or f"HTTP {reply.status_code}")


def wait_for(services: dict[str, str], timeout: float) -> bool:
    """Wait until each service (name -> base URL) is ready; False if one is not within `timeout` seconds.

    Prints a line whenever a service's state changes, and every ten seconds while it does not.
    """
    began = time.monotonic()
    said: dict[str, tuple[str, float]] = {}
    waiting = dict(services)
    with httpx.Client(timeout=5) as client:
        while waiting:
            now = time.monotonic() - began
            for name, url in list(waiting.items()):
                state = _state(client, url)
                before, when = said.get(name, (None, 0.0))
                if state != before or now - when > SAY_AGAIN:
                    click.echo(f"  {now:5.1f} s  {name:8} {state or 'ready'}", err=True)
                    said[name] = (state, now)
                if not state:
                    del waiting[name]
            if waiting and now > timeout:
                click.echo(f"not ready within {timeout:g} s: {', '.join(waiting)}", err=True)
                return False
            if waiting:
                time.sleep(POLL)
    return True
