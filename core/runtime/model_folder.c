#include "core/runtime/model_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/runtime/log.h"
#include "core/runtime/model_file.h"

#define FOLDER "STARPU_PERF_MODEL_DIR"
#define HOME_FOLDER "STARPU_HOME"
#define PRIVATE "starling-models-"

struct sl__model_folder {
  char path[PATH_MAX];
  char private[PATH_MAX];   /* "": none */
  char why[PATH_MAX + 160]; /* why it is private */
  int lock;                 /* of the private folder, held as long as it is used; -1: none */
  bool sets_home;           /* STARPU_HOME is set as well */
};

/* ---- the user's folder ---- */

/* The variable that names it, or that names a home; NULL: none does. */
static const char *find_variable(bool home) {
  static const char *const variables[] = {FOLDER, "XDG_CACHE_HOME", HOME_FOLDER, "HOME"};
  for (size_t i = home; i < sizeof variables / sizeof *variables; i++) {
    const char *value = getenv(variables[i]);
    if (value && *value) return variables[i];
  }
  return NULL;
}

/* A link or a folder of another user would let that user write where this one does. */
static int check_owner(const char *path) {
  struct stat link, folder;
  if (lstat(path, &link) != 0 || stat(path, &folder) != 0) return errno;
  if (!S_ISDIR(folder.st_mode)) return ENOTDIR;
  return link.st_uid == geteuid() && folder.st_uid == geteuid() ? 0 : EPERM;
}

/* Makes it with the folders above it. */
static int make_path(char *path) {
  for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
    if (slash) *slash = '\0';
    int error = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
    if (slash) *slash = '/';
    if (error || !slash) return error;
  }
}

/* More than StarPU writes when it starts for the first time, as far as files may grow. */
static int fill_file(int file) {
  char zeros[1 << 12] = {0};
  struct rlimit limit;
  size_t left = 1 << 16;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < left) left = (size_t)limit.rlim_cur;
  while (left) {
    ssize_t done = write(file, zeros, left < sizeof zeros ? left : sizeof zeros);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done ? errno : ENOSPC;
    left -= (size_t)done;
  }
  return 0;
}

/* A full or read-only disk shows only when a file is written, or closed. */
static int try_file(const char *folder) {
  char name[PATH_MAX];
  if (snprintf(name, sizeof name, "%s/.starling-XXXXXX", folder) >= (int)sizeof name)
    return ENAMETOOLONG;
  int file = mkstemp(name);
  if (file < 0) return errno;
  int error = fill_file(file);
  if (close(file) != 0 && !error) error = errno;
  unlink(name);
  return error;
}

/* The folder, or .starpu in a home and a folder in that: nothing is made in another user's. A site
 * may share a folder of models: the variable that names it is as good as its owner. */
static int use_folder(struct sl__model_folder *f, const char *variable) {
  bool is_home = strcmp(variable, FOLDER) != 0;
  const char *value = getenv(variable);
  size_t room = sizeof f->path - strlen("/sampling");
  if (snprintf(f->path, room, "%s%s", value, is_home ? "/.starpu" : "") >= (int)room)
    return ENAMETOOLONG;
  int error = make_path(f->path);
  if (!error && is_home) error = check_owner(f->path);
  if (!error && is_home) {
    strcat(f->path, "/sampling");
    error = make_path(f->path);
    if (!error) error = check_owner(f->path);
  }
  return error ? error : try_file(f->path);
}

/* ---- the private folder ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  remove(path);
  return 0;
}

static void remove_folder(const char *path) {
  const int files = 8; /* open at once */
  nftw(path, remove_entry, files, FTW_DEPTH | FTW_PHYS);
}

/* Returns the lock of a folder of this user, or -1 with errno. */
static int lock_folder(const char *path) {
  struct stat info;
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return -1;
  if (fstat(folder, &info) == 0 && info.st_uid != geteuid())
    errno = EPERM;
  else if (flock(folder, LOCK_EX | LOCK_NB) == 0)
    return folder;
  int error = errno;
  close(folder);
  errno = error;
  return -1;
}

/* Removes what killed runs have left: the system has taken their locks. */
static void remove_leftovers(const char *above) {
  char path[PATH_MAX];
  const struct dirent *entry;
  DIR *folder = opendir(above);
  while (folder && (entry = readdir(folder))) {
    if (strncmp(entry->d_name, PRIVATE, strlen(PRIVATE)) != 0) continue;
    if (snprintf(path, sizeof path, "%s/%s", above, entry->d_name) >= (int)sizeof path) continue;
    int lock = lock_folder(path);
    if (lock < 0) continue;
    remove_folder(path);
    close(lock);
  }
  if (folder) closedir(folder);
}

/* EAGAIN: another run has taken the folder for one that was left. */
static int try_private(struct sl__model_folder *f, const char *above) {
  bool fits = snprintf(f->private, sizeof f->private, "%s/" PRIVATE "XXXXXX", above) < PATH_MAX;
  int error = !fits ? ENAMETOOLONG : mkdtemp(f->private) ? 0 : errno;
  if (!error) {
    f->lock = lock_folder(f->private); /* without locks no run removes it either */
    if (f->lock < 0 && (errno == EWOULDBLOCK || errno == ENOENT)) return EAGAIN;
    error = try_file(f->private);
    if (error) rmdir(f->private);
    if (error && f->lock >= 0) close(f->lock);
    if (error) f->lock = -1;
    if (error == ENOENT) return EAGAIN;
  }
  if (error) f->private[0] = '\0';
  return error;
}

/* Of the context that is open, for programs that end without sl_close. */
static char to_remove[PATH_MAX];
static pid_t owner; /* a child of fork leaves its parent's folder alone */

static void remove_at_exit(void) {
  if (*to_remove && getpid() == owner) remove_folder(to_remove);
}

static void plan_removal(const char *path) {
  static bool is_registered;
  strcpy(to_remove, path);
  owner = getpid();
  if (!is_registered) is_registered = atexit(remove_at_exit) == 0;
}

static enum sl_status make_private(struct sl__model_folder *f) {
  const char *above = getenv("TMPDIR");
  if (!above || !*above) above = "/tmp";
  int error;
  remove_leftovers(above);
  do error = try_private(f, above);
  while (error == EAGAIN);
  if (error)
    return sl__fail(
        SL_IO,
        "%s; a folder for this run alone cannot be made in %s either: %s; name a folder "
        "by " HOME_FOLDER,
        f->why, above, strerror(error));
  plan_removal(f->private);
  snprintf(f->path, sizeof f->path, "%s", f->private);
  setenv(FOLDER, f->path, 1);
  f->sets_home = !getenv("XDG_CACHE_HOME") && !getenv(HOME_FOLDER) && !getenv("HOME");
  if (f->sets_home) setenv(HOME_FOLDER, f->path, 1);
  return SL_OK;
}

static void remove_private(struct sl__model_folder *f) {
  remove_folder(f->private);
  *to_remove = '\0';
  unsetenv(FOLDER);
  if (f->sets_home) unsetenv(HOME_FOLDER);
}

/* ---- for the context ---- */

/* Must it be this folder, since the user has named it for StarPU? */
static bool is_explicit(const char *variable) {
  return variable && (!strcmp(variable, FOLDER) || !strcmp(variable, HOME_FOLDER));
}

enum sl_status sl__model_folder_open(struct sl_context *c) {
  struct sl__model_folder *f = sl__alloc(1, sizeof *f, "the folder of performance models");
  if (!f) return SL_NO_MEMORY;
  c->model_folder = f;
  f->lock = -1;
  const char *variable = find_variable(false);
  int error = variable ? use_folder(f, variable) : ENOENT;
  if (!error) return SL_OK;
  if (variable)
    snprintf(f->why, sizeof f->why, "%s (%s) cannot hold StarPU's performance models: %s", f->path,
             variable, error == EPERM ? "it belongs to another user" : strerror(error));
  else
    snprintf(f->why, sizeof f->why,
             "neither HOME nor " HOME_FOLDER
             " is set, which say where StarPU's performance models belong");
  if (is_explicit(variable)) return sl__fail(SL_IO, "%s; name another folder", f->why);
  return make_private(f);
}

void sl__model_folder_describe(struct sl_context *c) {
  if (c->model_folder->private[0])
    sl__log(c, SL_LOG_WARNING,
            "%s; they are kept for this run only, in %s; set " HOME_FOLDER " to keep them",
            c->model_folder->why, c->model_folder->private);
}

/* StarPU looks into FOLDER first, then into the home, also where this run has a private folder. */
enum sl_status sl__model_folder_check(struct sl_context *c) {
  const char *folder = getenv(FOLDER), *home = find_variable(true);
  enum sl_status status = SL_OK;
  char path[PATH_MAX];
  if (folder && *folder) status = sl__model_file_check_buses(c, folder);
  if (home && status == SL_OK &&
      snprintf(path, sizeof path, "%s/.starpu/sampling", getenv(home)) < PATH_MAX)
    status = sl__model_file_check_buses(c, path);
  return status;
}

const char *sl__model_folder(const struct sl_context *c) { return c->model_folder->path; }

void sl__model_folder_close(struct sl_context *c) {
  if (!c->model_folder) return;
  if (c->model_folder->private[0]) remove_private(c->model_folder);
  if (c->model_folder->lock >= 0) close(c->model_folder->lock);
  free(c->model_folder);
  c->model_folder = NULL;
}
