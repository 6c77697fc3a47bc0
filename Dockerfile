# The viewer for a host that has an NVIDIA driver and nothing else, also for one without a GPU:
#
#     docker build -t splatview .
#     docker run --rm --gpus all --user "$(id -u)" --network host -v /tmp:/tmp splatview
#
# It shows the runs of the user who starts it, on the host and in other containers that
# share /tmp, and prints the address of its page. Without a CUDA compiler in the image
# scenes are drawn by OpenGL; the driver's OpenGL comes from the host.
FROM python:3.11-slim

# EGL and OpenGL without a display, and Mesa's for hosts without a GPU: as .ci/setup.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libgl1 libgl1-mesa-dri libglx-mesa0 \
    && rm -rf /var/lib/apt/lists/*

COPY . /usr/src/splatview
RUN pip install --no-cache-dir "/usr/src/splatview[memory,video]" \
    && mkdir -m 1777 /home/viewer

# What the NVIDIA container toolkit is to bring: CUDA, and the libraries of EGL and OpenGL.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility \
    HOME=/home/viewer \
    PYTHONUNBUFFERED=1
USER 1000
EXPOSE 7007
ENTRYPOINT ["splatview"]
CMD ["serve", "--web"]
