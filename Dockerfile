# The page in a container, for a CPU. For a GPU build with `--build-arg BASE=pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime`,
# whose torch is kept.
ARG BASE=python:3.12-slim
FROM ${BASE}

# Where torch comes from, if not from pip's default index: give the address that PyTorch's own installation page names
# for CPU builds to save several gigabytes of CUDA libraries.
ARG TORCH_FROM=
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 GRADIO_ANALYTICS_ENABLED=False HF_HUB_DISABLE_TELEMETRY=1 \
    GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=7860 SPECVIZ_CACHE=/home/user/cache

RUN useradd --create-home --uid 1000 user
WORKDIR /home/user/app

# Dependencies change seldom and weigh most: their layers come first.
COPY requirements.txt .
RUN pip install ${TORCH_FROM:+--index-url "$TORCH_FROM"} "torch>=2.8,<2.14" && pip install -r requirements.txt

USER user
COPY --chown=user specviz/__init__.py specviz/__main__.py specviz/errors.py specviz/
COPY --chown=user specviz/models specviz/models
COPY --chown=user specviz/commands specviz/commands
COPY --chown=user assets assets
# SmolLM2 comes with the image, so that a container without network speaks English.
RUN python -m specviz fetch smollm2

COPY --chown=user . .

EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7860/gradio_api/info', timeout=4)"]
CMD ["python", "app.py"]
