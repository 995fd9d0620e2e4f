# vllm-watch beside an engine. Build: docker build -t vllm-watch .
# BASE needs Python 3.11 or later with venv and pip, at the same place in both stages.
ARG BASE=docker.io/library/python:3.12-slim

FROM ${BASE} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Of every byte that is fetched, the hash is in the repository: make lock.
COPY requirements*.lock ./
RUN python3 -m venv /opt/build \
    && /opt/build/bin/python -m pip install --require-hashes --only-binary :all: -r requirements-build.lock
# requirements-apprise.lock: with the library of notifications.apprise.
ARG LOCK=requirements.lock
# Without pip of its own: nothing can be installed into the running image.
RUN python3 -m venv --without-pip /opt/vllm-watch \
    && python3 -m pip --python /opt/vllm-watch/bin/python install --no-compile --require-hashes --only-binary :all: -r "$LOCK"
COPY pyproject.toml README.md LICENSE ./
COPY vllm_watch ./vllm_watch
COPY docs/man ./docs/man
RUN /opt/build/bin/python -m pip wheel --no-build-isolation --no-deps --wheel-dir /wheel . \
    && python3 -m pip --python /opt/vllm-watch/bin/python install --no-compile --no-deps --no-index /wheel/vllm_watch-*.whl
# Two builds of one commit are the same, byte for byte: bytecode that names hashes and not times, also where pip has
# left some (-f), and files of one time.
ARG SOURCE_DATE_EPOCH=0
RUN mkdir /state && python3 -m compileall -q -f -j 0 --invalidation-mode unchecked-hash /opt/vllm-watch/lib \
    && find /opt/vllm-watch /state -exec touch --no-dereference --date "@${SOURCE_DATE_EPOCH}" {} +

FROM ${BASE}
ARG VERSION=0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="vllm-watch" \
      org.opencontainers.image.description="Watches vLLM engines and their GPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# NVIDIA's container runtime puts libnvidia-ml into the container for these; elsewhere they do nothing.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility PYTHONUNBUFFERED=1
COPY --from=build /opt/vllm-watch /opt/vllm-watch
# For --state-dir: a new volume that is mounted here belongs to the user below.
COPY --from=build --chown=65532:65532 /state /var/lib/vllm-watch
# A number, so that Kubernetes' runAsNonRoot can see that it is not root.
USER 65532:65532
EXPOSE 9470
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=15s --retries=3 \
    CMD ["/opt/vllm-watch/bin/vllm-watch", "probe"]
ENTRYPOINT ["/opt/vllm-watch/bin/vllm-watch"]
# Within the container only; publishing the port is what opens it.
CMD ["run", "--listen", "0.0.0.0:9470"]
