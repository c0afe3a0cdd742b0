"""`diptych gateway`: the process around the app."""

import asyncio
import logging

from pydantic import ValidationError

from services.gateway.app import create_app
from services.gateway.painter import Pipeline
from services.gateway.protocol import bounded
from services.gateway.settings import GatewaySettings
from services.observe.logs import configure_logging
from services.observe.tracing import TRACING
from services.serving.server import DrainingServer, configuration, listen
from services.serving.settings import start_tracing
from services.wire.errors import ConfigError

log = logging.getLogger(__name__)


def read_settings(**flags: object) -> GatewaySettings:
    """The settings. Raises ConfigError in one line that names the variable."""
    try:
        return GatewaySettings(**{name: value for name, value in flags.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = "_".join(["DIPTYCH", *(str(part).upper() for part in first["loc"][:1])])
        raise ConfigError(f"{name}: {first['msg']}", param=name) from error


def run(settings: GatewaySettings) -> int:
    """Serve until a signal; the exit code. Raises ConfigError in one line that names the setting."""
    configure_logging("gateway")
    start_tracing("gateway")
    painter = Pipeline(settings)
    bound = listen(settings.gateway_host, settings.gateway_port, "DIPTYCH_GATEWAY_PORT")
    host, port = bound.getsockname()[:2]

    async def drain() -> None:
        painter.drain()
        ends = asyncio.get_running_loop().time() + settings.drain_timeout
        while len(painter) and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110 - a queue length has no event
            await asyncio.sleep(0.1)

    log.info("the gateway listens on http://%s:%d", host, port)
    server = DrainingServer(bounded(configuration(create_app(settings, painter))), drain)
    server.run(sockets=[bound])
    TRACING.stop()
    return server.exit_code
