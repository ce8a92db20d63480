# zkplan's command line: `docker run zkplan worker --hosts zk1:2181`.
# Nothing of your code is in it: workers need an image on top of it (docs/operate/operating.md, Containers).

# The minor version of those who add tasks: functions by value run under no other one. From 3.11 on: requirements.lock
# has nothing that only older ones need.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

WORKDIR /opt/zkplan
COPY pyproject.toml README.md LICENSE requirements.lock ./
# What zkplan and its commands need, with what `serve`, --metrics, --traces and keys use, and what it is built with: these versions, with these digests. `python3 dev.py lock` makes the list.
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY zkplan ./zkplan
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

# A plan's functions run here: as a user that owns nothing of the image.
RUN useradd --create-home zkplan
USER zkplan
# A worker imports from its current folder: here belong the modules of the functions.
WORKDIR /home/zkplan

# Whether the root can be used from here, where the environment says which (ZKPLAN_HOSTS). Of a
# process with --metrics ask its /healthz instead (docs/operate/metrics.md).
HEALTHCHECK --interval=60s --timeout=30s --start-period=30s \
    CMD test -z "$ZKPLAN_HOSTS" || zkplan config check

# Docker stops with SIGTERM, on which a worker finishes or hands back what it holds.
ENTRYPOINT ["zkplan"]
CMD ["--help"]
