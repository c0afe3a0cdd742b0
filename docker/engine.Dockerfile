# The AR and the DiT service: one image, `diptych ar` or `diptych dit`. docker/build.sh builds it, in one of two profiles:
#   cuda   on the pinned vLLM image, which brings CUDA, torch and vLLM (not built or run by us: it needs a GPU machine)
#   cpu    on a slim Python image, for the tiny checkpoint
ARG BASE_IMAGE=vllm/vllm-openai:v0.30.0
FROM ${BASE_IMAGE}
ARG PROFILE=cuda

# tini reaps the worker processes that vLLM leaves behind; libgomp and libnuma are what its CPU kernels load.
RUN apt-get update \
 && apt-get install -y --no-install-recommends tini libgomp1 libnuma1 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/*

COPY requirements/${PROFILE}.txt /tmp/requirements.txt
COPY requirements/tracing.txt /tmp/
# cuda: the base image's own packages stay where the lock agrees with them, and only the rest is added; its nixl-cu12
# goes, since NIXL must find one wheel. The secrets are optional: a pip.conf and a CA bundle, for builds behind a mirror;
# neither they nor the cache of wheels stay in a layer.
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_bundle,target=/run/secrets/ca_bundle \
    --mount=type=cache,target=/root/.cache/pip \
    if [ "${PROFILE}" = cuda ]; then site=--system-site-packages; python3 -m pip uninstall --yes nixl-cu12; fi \
 && python3 -m venv ${site:-} /opt/diptych \
 && /opt/diptych/bin/pip install --no-deps -r /tmp/requirements.txt -r /tmp/tracing.txt

WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY services services
RUN /opt/diptych/bin/pip install --no-cache-dir --no-deps --no-build-isolation --no-index . \
 && rm -rf services build *.egg-info
COPY stage_configs stage_configs
COPY docker/ready.py ./
# Group 0 may write: a cluster that picks the user id keeps group 0.
RUN install -d -m 2775 -o 10001 -g 0 /var/cache/diptych
# Whatever is written at run time goes below one folder, so that one volume holds it and the root may be read-only.
# USER: torch asks for the user's name, and an arbitrary user id has none.
ENV PATH=/opt/diptych/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/var/cache/diptych \
    USER=diptych \
    DIPTYCH_CACHE=/var/cache/diptych \
    XDG_CACHE_HOME=/var/cache/diptych/xdg \
    HF_HOME=/var/cache/diptych/huggingface \
    VLLM_CACHE_ROOT=/var/cache/diptych/vllm \
    TORCHINDUCTOR_CACHE_DIR=/var/cache/diptych/inductor \
    TRITON_CACHE_DIR=/var/cache/diptych/triton \
    VLLM_NO_USAGE_STATS=1 \
    DIPTYCH_AR_HOST=0.0.0.0 \
    DIPTYCH_DIT_HOST=0.0.0.0
USER 10001:0
EXPOSE 8101 8102
# No HEALTHCHECK here: the role decides the port. Compose files and manifests give it.
ENTRYPOINT ["tini", "--", "diptych"]
CMD ["--help"]
