/* A V4L2 camera for programs that are started with LD_PRELOAD=this and FAKE_CAMERA=FOLDER.

The node is FOLDER/node, a link to a device that exists; without the link, the camera is unplugged. In FOLDER stand:
"frame", the bytes of each picture that it gives; "format", its four letters; "node_only" if it takes no pictures;
"frozen" if none comes. What it was asked for, it writes to "asked": width, height, four letters, pictures a second. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define BUFFERS 4
#define ROOM (4 << 20)
#define MOST 1024

static char ours[MOST];
static struct v4l2_pix_format format;
static unsigned rate = 30, sequence, queue[BUFFERS], queued, streaming;
static double next_due;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static const char *in(const char *name) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", getenv("FAKE_CAMERA"), name);
    return path;
}

static int there(const char *name) {
    char target[PATH_MAX];
    return access(in(name), F_OK) == 0 || readlink(in(name), target, sizeof target) > 0;
}

static size_t contents(const char *name, void *into, size_t most) {
    FILE *file = fopen(in(name), "rb");
    size_t size = file ? fread(into, 1, most, file) : 0;
    if (file)
        fclose(file);
    return size;
}

static unsigned only_format(void) {
    unsigned letters = V4L2_PIX_FMT_MJPEG;
    contents("format", &letters, 4);
    return letters;
}

static void settle(struct v4l2_pix_format *pix) {
    pix->width = pix->width > 1280 ? 1280 : pix->width < 64 ? 64 : pix->width;
    pix->height = pix->height > 720 ? 720 : pix->height < 48 ? 48 : pix->height;
    pix->pixelformat = only_format();
    pix->field = V4L2_FIELD_NONE;
    pix->bytesperline = pix->width * 2;
    pix->sizeimage = pix->width * pix->height * 2;
    pix->colorspace = V4L2_COLORSPACE_SRGB;
}

static void note(void) {
    FILE *file = fopen(in("asked"), "w");
    if (file) {
        fprintf(file, "%u %u %.4s %u\n", format.width, format.height, (char *)&format.pixelformat, rate);
        fclose(file);
    }
}

static int fail(int why) {
    errno = why;
    return -1;
}

static int take(int fd, struct v4l2_buffer *buffer) {
    if (!streaming || !queued)
        return fail(EINVAL);
    if (there("frozen") || now() < next_due)
        return fail(EAGAIN);
    static char bytes[ROOM];
    size_t size = contents("frame", bytes, sizeof bytes);
    unsigned index = queue[0];
    memmove(queue, queue + 1, --queued * sizeof *queue);
    if (pwrite(fd, bytes, size, (off_t)index * ROOM) < 0)
        return -1;
    double t = now();
    next_due = (next_due + 1.0 / rate > t) ? next_due + 1.0 / rate : t;
    buffer->index = index;
    buffer->bytesused = size;
    buffer->length = ROOM;
    buffer->m.offset = index * ROOM;
    buffer->sequence = sequence++;
    buffer->flags = V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
    buffer->timestamp.tv_sec = (long)t;
    buffer->timestamp.tv_usec = (long)((t - (long)t) * 1e6);
    return 0;
}

static int answer(int fd, unsigned long request, void *argument) {
    if (!there("node"))
        return fail(ENODEV);
    struct v4l2_capability *capability = argument;
    struct v4l2_format *asked = argument;
    struct v4l2_streamparm *parameters = argument;
    struct v4l2_requestbuffers *wanted = argument;
    struct v4l2_buffer *buffer = argument;
    switch ((unsigned)request) {
    case VIDIOC_QUERYCAP:
        memset(capability, 0, sizeof *capability);
        strcpy((char *)capability->driver, "fake");
        strcpy((char *)capability->card, "Fake Camera");
        capability->device_caps = (there("node_only") ? V4L2_CAP_META_CAPTURE : V4L2_CAP_VIDEO_CAPTURE)
            | V4L2_CAP_STREAMING;
        capability->capabilities = V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING | V4L2_CAP_DEVICE_CAPS;
        return 0;
    case VIDIOC_G_INPUT:
        *(int *)argument = 0;
        return 0;
    case VIDIOC_S_INPUT:
        return 0;
    case VIDIOC_ENUMINPUT:
        return ((struct v4l2_input *)argument)->index ? fail(EINVAL) : 0;
    case VIDIOC_G_FMT:
        if (!format.width)
            format.width = 640, format.height = 480, settle(&format);
        asked->fmt.pix = format;
        return 0;
    case VIDIOC_TRY_FMT:
        settle(&asked->fmt.pix);
        return 0;
    case VIDIOC_S_FMT:
        settle(&asked->fmt.pix);
        format = asked->fmt.pix;
        note();
        return 0;
    case VIDIOC_G_PARM:
    case VIDIOC_S_PARM:
        if ((unsigned)request == VIDIOC_S_PARM && parameters->parm.capture.timeperframe.numerator) {
            rate = parameters->parm.capture.timeperframe.denominator / parameters->parm.capture.timeperframe.numerator;
            rate = rate > 60 ? 60 : rate ? rate : 1;
            note();
        }
        parameters->parm.capture.capability = V4L2_CAP_TIMEPERFRAME;
        parameters->parm.capture.timeperframe.numerator = 1;
        parameters->parm.capture.timeperframe.denominator = rate;
        return 0;
    case VIDIOC_REQBUFS:
        if (wanted->count > BUFFERS)
            wanted->count = BUFFERS;
        queued = 0;
        return 0;
    case VIDIOC_QUERYBUF:
        buffer->length = ROOM;
        buffer->m.offset = buffer->index * ROOM;
        return buffer->index < BUFFERS ? 0 : fail(EINVAL);
    case VIDIOC_QBUF:
        if (queued == BUFFERS)
            return fail(EINVAL);
        queue[queued++] = buffer->index;
        return 0;
    case VIDIOC_DQBUF:
        return take(fd, buffer);
    case VIDIOC_STREAMON:
        streaming = 1;
        next_due = now();
        return 0;
    case VIDIOC_STREAMOFF:
        streaming = queued = 0;
        return 0;
    }
    return fail(ENOTTY);
}

static int begin(const char *path, int flags, mode_t mode, const char *symbol) {
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, symbol);
    if (!getenv("FAKE_CAMERA") || strcmp(path, in("node")) || !there("node"))
        return real(path, flags, mode);
    int fd = memfd_create("camera", MFD_CLOEXEC);
    if (fd < 0 || fd >= MOST || ftruncate(fd, (off_t)BUFFERS * ROOM))
        abort();
    ours[fd] = 1;
    return fd;
}

#define OPEN(name)                                                                                                    \
    int name(const char *path, int flags, ...) {                                                                      \
        va_list rest;                                                                                                 \
        va_start(rest, flags);                                                                                        \
        mode_t mode = va_arg(rest, mode_t);                                                                           \
        va_end(rest);                                                                                                 \
        return begin(path, flags, mode, #name);                                                                       \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    if (fd >= 0 && fd < MOST && ours[fd])
        ours[fd] = streaming = queued = 0;
    return real(fd);
}

int ioctl(int fd, unsigned long request, ...) {
    int (*real)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return fd >= 0 && fd < MOST && ours[fd] ? answer(fd, request, argument) : real(fd, request, argument);
}

/* The memory behind the node can always be read: waiting for a picture is done here. */
int select(int count, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout) {
    int (*real)(int, fd_set *, fd_set *, fd_set *, struct timeval *) =
        (int (*)(int, fd_set *, fd_set *, fd_set *, struct timeval *))dlsym(RTLD_NEXT, "select");
    int fd = -1;
    for (int i = 0; read && i < count && i < MOST; i++)
        if (ours[i] && FD_ISSET(i, read))
            fd = i;
    if (fd < 0)
        return real(count, read, write, except, timeout);
    double end = timeout ? now() + timeout->tv_sec + timeout->tv_usec / 1e6 : 1e300;
    while (there("node") && (there("frozen") || now() < next_due)) {
        if (now() >= end) {
            FD_ZERO(read);
            return 0;
        }
        usleep(1000);
    }
    return 1;
}
