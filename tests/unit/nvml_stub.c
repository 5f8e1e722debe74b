/* A libnvidia-ml.so.1 that tells what a file describes: the tests' GPUs, asked through the real binding.
 *
 * $NVML_STUB names the file; each line is one of
 *   init CODE                                              what nvmlInit answers
 *   driver VERSION
 *   gpu DOMAIN:BUS.DEVICE ERROR MIGMODE MEMORY CAPABILITY UUID NAME...    ERROR: what opening it answers, 0 for none
 *   mig GPUINSTANCE COMPUTEINSTANCE MEMORY UUID NAME...    a slice of the GPU above
 * A memory of 0 is "not supported", a MIGMODE of -1 too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, LIMIT = 16 };

typedef struct device {
    unsigned domain, bus, slot, gi, ci;
    int error, mode, major, minor, slices;
    unsigned long long memory;
    char uuid[96], name[96];
    struct device *slice[LIMIT];
} device;

typedef struct { char legacy[16]; unsigned domain, bus, slot, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;

static device *gpus[LIMIT];
static unsigned count;
static int init_answer;
static char driver[80] = "550.54.15";

static void read_line(const char *line) {
    device *d = calloc(1, sizeof *d);
    if (sscanf(line, "init %d", &init_answer) == 1 || sscanf(line, "driver %79s", driver) == 1) return;
    if (sscanf(line, "gpu %x:%x.%x %d %d %llu %d.%d %95s %95[^\n]", &d->domain, &d->bus, &d->slot, &d->error, &d->mode,
               &d->memory, &d->major, &d->minor, d->uuid, d->name) == 10)
        gpus[count++] = d;
    else if (sscanf(line, "mig %u %u %llu %95s %95[^\n]", &d->gi, &d->ci, &d->memory, d->uuid, d->name) == 5)
        gpus[count - 1]->slice[gpus[count - 1]->slices++] = d;
    else
        fprintf(stderr, "nvml_stub: cannot read: %s", line), abort();
}

int nvmlInitWithFlags(unsigned flags) {
    char line[512];
    FILE *file = fopen(getenv("NVML_STUB"), "r");
    count = 0;
    while (fgets(line, sizeof line, file)) read_line(line);
    fclose(file);
    return init_answer;
}
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return snprintf(text, size, "%s", driver), SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *n) { return *n = count, SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device **d) { return *d = gpus[i], gpus[i]->error; }
int nvmlDeviceGetName(device *d, char *text, unsigned size) { return snprintf(text, size, "%s", d->name), SUCCESS; }
int nvmlDeviceGetUUID(device *d, char *text, unsigned size) { return snprintf(text, size, "%s", d->uuid), SUCCESS; }
int nvmlDeviceGetPciInfo_v3(device *d, pci_info *p) {
    return memset(p, 0, sizeof *p), p->domain = d->domain, p->bus = d->bus, p->slot = d->slot, SUCCESS;
}
int nvmlDeviceGetMemoryInfo(device *d, memory_info *m) {
    return m->total = m->free = d->memory, m->used = 0, d->memory ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetCudaComputeCapability(device *d, int *major, int *minor) {
    return *major = d->major, *minor = d->minor, SUCCESS;
}
int nvmlDeviceGetMigMode(device *d, unsigned *now, unsigned *pending) {
    return *now = *pending = (unsigned)d->mode, d->mode < 0 ? NOT_SUPPORTED : SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *n) { return *n = 7, SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned i, device **slice) {
    return *slice = i < (unsigned)d->slices ? d->slice[i] : NULL, *slice ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) { return *id = d->gi, SUCCESS; }
int nvmlDeviceGetComputeInstanceId(device *d, unsigned *id) { return *id = d->ci, SUCCESS; }
