/* Makes system calls and allocations fail: a shared object for LD_PRELOAD
 * (tests/faults/run-faults).
 *
 * FAULTS_CLASS is a row of `classes`; FAULTS_N the call that fails, from 1 on; with FAULTS_STAY all
 * later ones fail, too. A call counts if code of ours asked for it: the return addresses are
 * followed from the call outwards, past the C library and past libraries that work for their caller
 * alone (jansson, zlib, libpng, libjpeg, protobuf-c, xxHash, cairo), and the first other object
 * decides. It is ours if its path begins with FAULTS_OURS, the folder of the build. With
 * FAULTS_OTHERS the calls of all other objects count instead: StarPU, hwloc, OpenBLAS, MPI, and
 * libcrypto, whose first HMAC makes 5,000 allocations.
 * FAULTS_RANK restricts faults to one rank of mpirun. FAULTS_REPORT is a file to which each process
 * appends "hit CLASS N OBJECT OFFSET FUNCTION" and at its end "count CLASS N" for every class.
 *
 * Messages must get out: writes to the error stream count for nothing. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum class { ALLOCATION, OPEN, READ, WRITE, SYNC, RENAME, CONNECT, SEND, RECEIVE, THREAD, CLASSES };

static struct {
  const char *name;
  int error; /* errno of a call that fails */
  atomic_long count;
} classes[CLASSES] = {
    [ALLOCATION] = {"allocation", ENOMEM, 0},
    [OPEN] = {"open", EMFILE, 0},
    [READ] = {"read", EIO, 0},
    [WRITE] = {"write", ENOSPC, 0},
    [SYNC] = {"fsync", EIO, 0},
    [RENAME] = {"rename", ENOSPC, 0},
    [CONNECT] = {"connect", ECONNREFUSED, 0},
    [SEND] = {"send", ECONNRESET, 0},
    [RECEIVE] = {"receive", ECONNRESET, 0},
    [THREAD] = {"thread", EAGAIN, 0},
};

static long wanted; /* 0: none fails */
static enum class chosen = CLASSES;
static bool stays, of_others;
static atomic_bool ready;
static const char *report;
static __thread int inside __attribute__((tls_model("initial-exec")));

/* ---- whose code is it? ---- */

enum owner { OURS, HELPER, JANSSON, OTHERS };

/* Objects that are dlopened later are others'. */
static struct object {
  uintptr_t from, to;
  enum owner owner;
} objects[512];
static int object_count;

static bool helps(const char *path) {
  static const char *const names[] = {
      "libc.so", "libm.so",   "libpthread",    "ld-linux", "libdl.so",  "libz.so",  "libpng",
      "libjpeg", "libxxhash", "libprotobuf-c", "libcairo", "libfaults", "libgcc_s", "linux-vdso"};
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strncmp(name, names[i], strlen(names[i]))) return true;
  return false;
}

static int add_object(struct dl_phdr_info *info, size_t size, void *ours) {
  char program[4096];
  const char *path = info->dlpi_name;
  (void)size;
  if (!*path) { /* the program itself */
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    path = program;
  }
  enum owner owner = strstr(path, "libjansson") ? JANSSON : helps(path) ? HELPER : OTHERS;
  if (owner == OTHERS && ours && !strncmp(path, ours, strlen(ours))) owner = OURS;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    uintptr_t from = info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && part->p_flags & PF_X && object_count < 512)
      objects[object_count++] = (struct object){from, from + part->p_memsz, owner};
  }
  return 0;
}

static enum owner owner_of(const void *address) {
  uintptr_t at = (uintptr_t)address;
  for (int i = 0; i < object_count; i++)
    if (at >= objects[i].from && at < objects[i].to) return objects[i].owner;
  return OTHERS;
}

/* jansson 2.14 writes beyond a buffer if the buffer of a string that it reads cannot grow (lex_save
 * ignores strbuffer_append_byte's failure): the report says where it was reading. */
static __thread bool reads_json __attribute__((tls_model("initial-exec")));

static bool is_json_load(const void *address) {
  Dl_info info;
  return dladdr(address, &info) && info.dli_sname && !strncmp(info.dli_sname, "json_load", 9);
}

/* *address: the code that decided. */
static enum owner caller(const void **address) {
  void *frames[48];
  enum owner owner = owner_of(*address);
  reads_json = false;
  if (owner != HELPER && owner != JANSSON) return owner;
  int count = backtrace(frames, 48);
  for (int i = 0; i < count; i++) {
    *address = frames[i];
    owner = owner_of(*address);
    if (owner == JANSSON)
      reads_json |= is_json_load(*address); /* dladdr is slow: not for each frame */
    else if (owner != HELPER)
      return owner;
  }
  return OTHERS;
}

/* ---- the fault ---- */

/* By system calls alone: nothing here may fail by itself. */
static void append(const char *text) {
  if (!report) return;
  long file =
      syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  syscall(SYS_write, file, text, strlen(text));
  syscall(SYS_close, file);
}

static void report_hit(enum class class, long n, const void *address) {
  char line[4096 + 100];
  Dl_info info;
  bool known = dladdr(address, &info) != 0;
  snprintf(line, sizeof line, "hit %s %ld %s 0x%lx %s%s\n", classes[class].name, n,
           known ? info.dli_fname : "?",
           known ? (unsigned long)((uintptr_t)address - (uintptr_t)info.dli_fbase) : 0,
           known && info.dli_sname ? info.dli_sname : "?", reads_json ? " json_load" : "");
  append(line);
}

/* Is this the call that fails? Then errno is set. */
static bool fails(enum class class, const void *address) {
  int before = errno;
  if (!atomic_load(&ready) || inside) return false;
  inside++;
  bool counts = (caller(&address) == OURS) != of_others && owner_of(address) != HELPER &&
                owner_of(address) != JANSSON;
  long n = counts ? atomic_fetch_add(&classes[class].count, 1) + 1 : 0;
  bool hit = n && class == chosen && (n == wanted || (stays && wanted && n > wanted));
  if (hit && n == wanted) report_hit(class, n, address);
  inside--;
  errno = hit ? classes[class].error : before;
  return hit;
}

#define FAILS(class) fails(class, __builtin_return_address(0))

/* The function that this one stands before. */
#define NEXT(type, name)                                                                           \
  static __typeof__(type) next;                                                                    \
  if (!next) next = (__typeof__(type))(uintptr_t)find(name)

static void *find(const char *name) {
  inside++;
  void *function = dlsym(RTLD_NEXT, name);
  inside--;
  return function;
}

static bool is_this_rank(void) {
  const char *rank = getenv("FAULTS_RANK"), *own = getenv("OMPI_COMM_WORLD_RANK");
  if (!own) own = getenv("PMI_RANK");
  return !rank || (own && !strcmp(rank, own));
}

__attribute__((constructor)) static void begin(void) {
  const char *class = getenv("FAULTS_CLASS"), *n = getenv("FAULTS_N");
  void *frames[4];
  inside++;
  backtrace(frames, 4); /* loads the unwinder */
  dl_iterate_phdr(add_object, getenv("FAULTS_OURS"));
  stays = getenv("FAULTS_STAY") != NULL;
  of_others = getenv("FAULTS_OTHERS") != NULL;
  report = getenv("FAULTS_REPORT");
  wanted = n ? atol(n) : 0;
  for (int i = 0; class && i < CLASSES; i++)
    if (!strcmp(classes[i].name, class)) chosen = (enum class)i;
  inside--;
  atomic_store(&ready, is_this_rank());
}

__attribute__((destructor)) static void end(void) {
  char text[1024] = "";
  size_t used = 0;
  if (!atomic_exchange(&ready, false)) return;
  for (int i = 0; i < CLASSES; i++)
    if (atomic_load(&classes[i].count))
      used += (size_t)snprintf(text + used, sizeof text - used, "count %s %ld\n", classes[i].name,
                               atomic_load(&classes[i].count));
  if (used) append(text);
}

/* ---- allocation ---- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

EXPORT void *malloc(size_t size) { return FAILS(ALLOCATION) ? NULL : __libc_malloc(size); }

EXPORT void *calloc(size_t count, size_t size) {
  return FAILS(ALLOCATION) ? NULL : __libc_calloc(count, size);
}

EXPORT void *realloc(void *block, size_t size) {
  return size && FAILS(ALLOCATION) ? NULL : __libc_realloc(block, size);
}

EXPORT void *reallocarray(void *block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return errno = ENOMEM, NULL;
  return bytes && FAILS(ALLOCATION) ? NULL : __libc_realloc(block, bytes);
}

EXPORT int posix_memalign(void **block, size_t alignment, size_t size) {
  if (FAILS(ALLOCATION)) return ENOMEM;
  void *made = __libc_memalign(alignment, size);
  if (made) *block = made;
  return made ? 0 : ENOMEM;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) {
  return FAILS(ALLOCATION) ? NULL : __libc_memalign(alignment, size);
}

/* ---- opening ---- */

#define OPENER(name)                                                                               \
  EXPORT int name(const char *path, int flags, ...) {                                              \
    va_list list;                                                                                  \
    va_start(list, flags);                                                                         \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;                        \
    va_end(list);                                                                                  \
    NEXT(int (*)(const char *, int, ...), #name);                                                  \
    return FAILS(OPEN) ? -1 : next(path, flags, mode);                                             \
  }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name)                                                                            \
  EXPORT int name(int folder, const char *path, int flags, ...) {                                  \
    va_list list;                                                                                  \
    va_start(list, flags);                                                                         \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;                        \
    va_end(list);                                                                                  \
    NEXT(int (*)(int, const char *, int, ...), #name);                                             \
    return FAILS(OPEN) ? -1 : next(folder, path, flags, mode);                                     \
  }
OPENER_AT(openat)
OPENER_AT(openat64)

#define STREAM_OPENER(name)                                                                        \
  EXPORT FILE *name(const char *path, const char *mode) {                                          \
    NEXT(FILE *(*)(const char *, const char *), #name);                                            \
    return FAILS(OPEN) ? NULL : next(path, mode);                                                  \
  }
STREAM_OPENER(fopen)
STREAM_OPENER(fopen64)

EXPORT int mkdir(const char *path, mode_t mode) {
  NEXT(int (*)(const char *, mode_t), "mkdir");
  if (!FAILS(OPEN)) return next(path, mode);
  errno = ENOSPC;
  return -1;
}

EXPORT DIR *opendir(const char *path) {
  NEXT(DIR * (*)(const char *), "opendir");
  return FAILS(OPEN) ? NULL : next(path);
}

/* ---- reading and writing ---- */

EXPORT ssize_t read(int file, void *bytes, size_t size) {
  NEXT(ssize_t(*)(int, void *, size_t), "read");
  return FAILS(READ) ? -1 : next(file, bytes, size);
}

/* A stream remembers its error only if the C library itself meets it: a stream without a file
 * behind it gives one. */
static void spoil(FILE *stream) { stream->_flags |= 0x20; /* _IO_ERR_SEEN */ }

EXPORT size_t fread(void *bytes, size_t size, size_t count, FILE *stream) {
  NEXT(size_t(*)(void *, size_t, size_t, FILE *), "fread");
  if (!FAILS(READ)) return next(bytes, size, count, stream);
  spoil(stream);
  return 0;
}

EXPORT ssize_t getline(char **line, size_t *room, FILE *stream) {
  NEXT(ssize_t(*)(char **, size_t *, FILE *), "getline");
  if (!FAILS(READ)) return next(line, room, stream);
  spoil(stream);
  return -1;
}

EXPORT ssize_t write(int file, const void *bytes, size_t size) {
  NEXT(ssize_t(*)(int, const void *, size_t), "write");
  return file != STDERR_FILENO && FAILS(WRITE) ? -1 : next(file, bytes, size);
}

EXPORT size_t fwrite(const void *bytes, size_t size, size_t count, FILE *stream) {
  NEXT(size_t(*)(const void *, size_t, size_t, FILE *), "fwrite");
  if (stream == stderr || !FAILS(WRITE)) return next(bytes, size, count, stream);
  spoil(stream);
  return 0;
}

EXPORT int fputs(const char *text, FILE *stream) {
  NEXT(int (*)(const char *, FILE *), "fputs");
  if (stream == stderr || !FAILS(WRITE)) return next(text, stream);
  spoil(stream);
  return EOF;
}

EXPORT int fflush(FILE *stream) {
  NEXT(int (*)(FILE *), "fflush");
  if (!stream || stream == stderr || !FAILS(WRITE)) return next(stream);
  spoil(stream);
  return EOF;
}

/* The stream is closed all the same; its last bytes may not have reached the disk. */
EXPORT int fclose(FILE *stream) {
  NEXT(int (*)(FILE *), "fclose");
  bool hit = stream != stderr && FAILS(WRITE);
  int error = errno, result = next(stream);
  if (!hit) return result;
  errno = error;
  return EOF;
}

EXPORT int fsync(int file) {
  NEXT(int (*)(int), "fsync");
  return FAILS(SYNC) ? -1 : next(file);
}

EXPORT int rename(const char *from, const char *to) {
  NEXT(int (*)(const char *, const char *), "rename");
  return FAILS(RENAME) ? -1 : next(from, to);
}

/* ---- sockets and threads ---- */

EXPORT int connect(int file, const struct sockaddr *address, socklen_t size) {
  NEXT(int (*)(int, const struct sockaddr *, socklen_t), "connect");
  return FAILS(CONNECT) ? -1 : next(file, address, size);
}

EXPORT ssize_t send(int file, const void *bytes, size_t size, int flags) {
  NEXT(ssize_t(*)(int, const void *, size_t, int), "send");
  return FAILS(SEND) ? -1 : next(file, bytes, size, flags);
}

EXPORT ssize_t sendmsg(int file, const struct msghdr *message, int flags) {
  NEXT(ssize_t(*)(int, const struct msghdr *, int), "sendmsg");
  return FAILS(SEND) ? -1 : next(file, message, flags);
}

EXPORT ssize_t recv(int file, void *bytes, size_t size, int flags) {
  NEXT(ssize_t(*)(int, void *, size_t, int), "recv");
  return FAILS(RECEIVE) ? -1 : next(file, bytes, size, flags);
}

EXPORT ssize_t recvmsg(int file, struct msghdr *message, int flags) {
  NEXT(ssize_t(*)(int, struct msghdr *, int), "recvmsg");
  return FAILS(RECEIVE) ? -1 : next(file, message, flags);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument) {
  NEXT(int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *), "pthread_create");
  return FAILS(THREAD) ? EAGAIN : next(thread, attributes, function, argument);
}
