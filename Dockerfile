# One image, two targets: cpu, and gpu (the default). Every step is a script of image/, which apptainer.def calls too.
#
#   docker build -t trainbox .                              the GPU image
#   docker build -t trainbox:cpu --target cpu .             the CPU image
#   docker build --build-arg BASE=IMAGE …                   from another Debian 13 (without a registry: .ci/base)
#   docker build --secret id=ca,src=CA.pem …                behind a proxy that opens TLS; also pip, uv, apt (image/site.sh)
#   docker build --build-arg SOURCE_DATE_EPOCH=SECONDS --provenance=false …    the same digest from the same files and
#                                                           packages (.ci/image-twice); REVISION, VERSION and LOCK: labels
#
# Each step sees only the files that it is made from, so that a change elsewhere keeps its layer.
# No `# syntax=` line: it would have to be fetched from a registry. The digest is what public projects pin for this tag
# (September 2026); it was not checked against the registry when it was written here.
ARG BASE=debian:trixie-20260918-slim@sha256:a99cfc517144bc59b1978475ec53b46ecabec7e43635402ee5b77cc54cd1b20a

FROM ${BASE} AS system
ENV PATH=/usr/local/bin:/opt/trainbox/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    HOME=/tmp \
    PYTHONNOUSERSITE=1 \
    PYTHONSAFEPATH=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN --mount=type=bind,source=image/site.sh,target=/build/image/site.sh \
    --mount=type=bind,source=image/bytecode,target=/build/image/bytecode \
    --mount=type=bind,source=image/clean,target=/build/image/clean \
    --mount=type=bind,source=image/system,target=/build/image/system \
    --mount=type=secret,id=ca --mount=type=secret,id=apt \
    --mount=type=cache,target=/var/cache/apt,sharing=locked --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/var/log \
    sh /build/image/system

FROM system AS tools
RUN --mount=type=bind,source=image/site.sh,target=/build/image/site.sh \
    --mount=type=bind,source=image/tools,target=/build/image/tools \
    --mount=type=bind,source=requirements/bootstrap.txt,target=/build/requirements/bootstrap.txt \
    --mount=type=secret,id=ca --mount=type=secret,id=apt --mount=type=secret,id=pip \
    --mount=type=cache,target=/var/cache/apt,sharing=locked --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/var/log \
    sh /build/image/tools

FROM system AS wheels-cpu
RUN --mount=type=bind,source=image/site.sh,target=/build/image/site.sh \
    --mount=type=bind,source=image/bytecode,target=/build/image/bytecode \
    --mount=type=bind,source=image/clean,target=/build/image/clean \
    --mount=type=bind,source=image/wheels,target=/build/image/wheels \
    --mount=type=bind,source=image/wheel_files.py,target=/build/image/wheel_files.py \
    --mount=type=bind,source=image/unneeded.txt,target=/build/image/unneeded.txt \
    --mount=type=bind,source=requirements/bootstrap.txt,target=/build/requirements/bootstrap.txt \
    --mount=type=bind,source=requirements/cpu.txt,target=/build/requirements/cpu.txt \
    --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=cache,target=/var/cache/uv --mount=type=tmpfs,target=/tmp \
    sh /build/image/wheels cpu

FROM system AS wheels-gpu
RUN --mount=type=bind,source=image/site.sh,target=/build/image/site.sh \
    --mount=type=bind,source=image/bytecode,target=/build/image/bytecode \
    --mount=type=bind,source=image/clean,target=/build/image/clean \
    --mount=type=bind,source=image/wheels,target=/build/image/wheels \
    --mount=type=bind,source=image/wheel_files.py,target=/build/image/wheel_files.py \
    --mount=type=bind,source=image/unneeded.txt,target=/build/image/unneeded.txt \
    --mount=type=bind,source=requirements/bootstrap.txt,target=/build/requirements/bootstrap.txt \
    --mount=type=bind,source=requirements/gpu.txt,target=/build/requirements/gpu.txt \
    --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=cache,target=/var/cache/uv --mount=type=tmpfs,target=/tmp \
    sh /build/image/wheels gpu

FROM wheels-cpu AS cpu
ARG REVISION=unknown
RUN --mount=type=bind,target=/build --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=tmpfs,target=/tmp \
    sh /build/image/package && sh /build/image/finish cpu
ARG VERSION=unknown
ARG LOCK=unknown
ARG BASE
LABEL org.opencontainers.image.title="trainbox" \
      org.opencontainers.image.description="Trains TensorFlow/Keras models with the same result wherever it runs (CPU)" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.base.name="${BASE}" \
      trainbox.variant="cpu" \
      trainbox.requirements.sha256="${LOCK}"
WORKDIR /workspace
USER 1000:1000
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/usr/local/bin/entrypoint"]
CMD ["--help"]

FROM wheels-gpu AS gpu
ARG REVISION=unknown
RUN --mount=type=bind,target=/build --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=tmpfs,target=/tmp \
    sh /build/image/package && sh /build/image/finish gpu
# Read by NVIDIA's container runtime: which GPUs to hand in, and which parts of the driver.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
ARG VERSION=unknown
ARG LOCK=unknown
ARG BASE
LABEL org.opencontainers.image.title="trainbox" \
      org.opencontainers.image.description="Trains TensorFlow/Keras models with the same result wherever it runs (GPU)" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.base.name="${BASE}" \
      trainbox.variant="gpu" \
      trainbox.requirements.sha256="${LOCK}"
WORKDIR /workspace
USER 1000:1000
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/usr/local/bin/entrypoint"]
CMD ["--help"]
