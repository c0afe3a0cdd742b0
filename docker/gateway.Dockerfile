# The gateway: Python, FastAPI, and nothing of torch, vLLM or NIXL. docker/build.sh builds it.
ARG BASE_IMAGE=python:3.12-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /build
COPY requirements/gateway.txt requirements/tracing.txt ./
# The two secrets are optional: a pip.conf and a CA bundle, for builds behind a mirror. Neither stays in a layer.
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_bundle,target=/run/secrets/ca_bundle \
    python3 -m venv /opt/diptych \
 && /opt/diptych/bin/pip install --no-cache-dir --no-deps -r gateway.txt -r tracing.txt setuptools==80.9.0
COPY pyproject.toml README.md LICENSE ./
COPY services services
# What only builds is not shipped: pip and setuptools are a third of the environment.
RUN /opt/diptych/bin/pip install --no-cache-dir --no-deps --no-build-isolation --no-index . \
 && /opt/diptych/bin/pip uninstall --yes setuptools pip

FROM ${BASE_IMAGE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/*
COPY --from=build /opt/diptych /opt/diptych
COPY docker/ready.py /app/ready.py
# Group 0 may write: a cluster that picks the user id keeps group 0.
RUN install -d -m 2775 -o 10001 -g 0 /var/lib/diptych
WORKDIR /app
ENV PATH=/opt/diptych/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/diptych \
    DIPTYCH_GATEWAY_HOST=0.0.0.0 \
    DIPTYCH_GATEWAY_PORT=8000 \
    DIPTYCH_STORAGE_URL=/var/lib/diptych/images
USER 10001:0
EXPOSE 8000
# Every 5 s, 4 s for an answer; three misses (15 s) make it unhealthy. Starting takes a second or two.
HEALTHCHECK --interval=5s --timeout=5s --retries=3 --start-period=15s \
    CMD ["/opt/diptych/bin/python3", "/app/ready.py", "8000"]
ENTRYPOINT ["tini", "--", "diptych"]
CMD ["gateway"]
