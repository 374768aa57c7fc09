# Fleet-Tools on Debian 12, with OpenGL in software: `docker build -t fleet-tools .`
# See docs/getting_started/install.md.
FROM debian:bookworm-slim

# libglib2.0-0 is for Drake; libegl1 and libgl1 are for images, with Mesa's drivers, which need no GPU.
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates \
        libegl1 \
        libgl1 \
        libgl1-mesa-dri \
        libglib2.0-0 \
        python3 \
        python3-venv \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 fleet
RUN python3 -m venv /opt/fleet-tools
# A step of Drake is a tenth faster if the C library keeps more freed memory at hand.
ENV PATH=/opt/fleet-tools/bin:$PATH \
    GLIBC_TUNABLES=glibc.malloc.tcache_count=5000 \
    PYTHONUNBUFFERED=1 \
    LIBGL_ALWAYS_SOFTWARE=1 \
    FLEET_TOOLS_MESHCAT_HOST=0.0.0.0

# Extras of the package, separated by commas, such as --build-arg EXTRAS=learning,video.
ARG EXTRAS=""
COPY . /usr/src/fleet-tools
RUN pip wheel -q --no-deps --wheel-dir /tmp/wheels /usr/src/fleet-tools/baselines/merging \
    && pip install --no-cache-dir -c /usr/src/fleet-tools/constraints.txt --find-links /tmp/wheels \
        "/usr/src/fleet-tools${EXTRAS:+[$EXTRAS]}"

USER fleet
WORKDIR /home/fleet
CMD ["fleet-tools", "doctor"]
