# The processor and its commands. Build: docker build -t gforce:dev .   Run: docker run --rm gforce:dev --help

FROM python:3.12-slim-bookworm AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY processor processor
COPY producers producers
COPY schemas schemas
ENV GFORCE_NATIVE=required
RUN python -m venv /opt/gforce \
 && /opt/gforce/bin/pip wheel --no-cache-dir --disable-pip-version-check --no-deps --wheel-dir /wheels . \
 && /opt/gforce/bin/pip install --no-cache-dir --disable-pip-version-check /wheels/*.whl

FROM python:3.12-slim-bookworm
RUN groupadd --gid 10001 gforce && useradd --uid 10001 --gid gforce --no-create-home --shell /usr/sbin/nologin gforce
COPY --from=build /opt/gforce /opt/gforce
ENV PATH=/opt/gforce/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GFORCE_NATIVE=required GFORCE_HTTP__HOST=0.0.0.0
USER 10001:10001
WORKDIR /tmp
EXPOSE 9464
# Alive, not ready: a processor that waits for partitions must not be restarted for it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('GFORCE_HTTP__PORT', '9464') + '/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["gforce"]
CMD ["run"]
