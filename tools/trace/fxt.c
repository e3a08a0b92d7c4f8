#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tools/trace/fxt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/json.h"

#ifndef SL_STARPU_BIN
#define SL_STARPU_BIN "" /* folder of StarPU's tools, set by configure */
#endif

extern char **environ;

static bool exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0;
}

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool is_newer(const char *a, const char *b) {
  struct stat of_a, of_b;
  if (stat(a, &of_a) != 0 || stat(b, &of_b) != 0) return true;
  return of_a.st_mtim.tv_sec > of_b.st_mtim.tv_sec || (of_a.st_mtim.tv_sec == of_b.st_mtim.tv_sec &&
                                                       of_a.st_mtim.tv_nsec > of_b.st_mtim.tv_nsec);
}

/* StarPU's tool does not notice that its files are cut. Root also has the reserved blocks. */
static bool is_full(const char *folder) {
  struct statvfs info;
  if (statvfs(folder, &info) != 0 || info.f_blocks == 0) return false;
  return (geteuid() == 0 ? info.f_bfree : info.f_bavail) == 0;
}

static void join(char *path, const char *folder, const char *name) {
  int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
  if (length >= PATH_MAX) *path = '\0';
}

/* ---- signals ---- */

/* Files that starpu_fxt_tool has begun, and the scratch folder, must not stay: while they are
 * there, a signal ends that tool at once, and this program when they are gone. */
static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
enum { CAUGHT = sizeof caught / sizeof *caught };
static struct sigaction before[CAUGHT];
static bool catches;
static volatile sig_atomic_t stopped; /* number of the signal, or 0 */
static volatile pid_t tool;           /* 0: it does not run */

static void on_signal(int number) {
  int error = errno;
  stopped = number;
  if (tool > 0) kill(tool, SIGTERM);
  errno = error;
}

/* Catches each signal once: a second one ends the program immediately. */
static void catch_signals(void) {
  const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};
  if (catches) return;
  catches = true;
  for (int i = 0; i < CAUGHT; i++) {
    sigaction(caught[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(caught[i], &action, NULL); /* as under nohup */
  }
}

/* Ends by the signal that came meanwhile, so that the parent process sees it. */
static void release_signals(void) {
  if (!catches) return;
  catches = false;
  for (int i = 0; i < CAUGHT; i++) sigaction(caught[i], &before[i], NULL);
  if (stopped) raise(stopped);
}

/* ---- starpu_fxt_tool ---- */

static const char *last_line(const char *path, char *text, size_t size) {
  FILE *f = fopen(path, "r");
  snprintf(text, size, "it printed no message");
  if (!f) return text;
  char line[200];
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n")] = '\0';
    if (*line) snprintf(text, size, "%.199s", line);
  }
  fclose(f);
  return text;
}

/* Returns the exit status, as waitpid gives it, or -errno if the program could not be started. */
static int spawn(char *const *arguments, char *const *environment, const char *log) {
  posix_spawn_file_actions_t actions;
  int status = -1;
  pid_t child;
  if (stopped) return -EINTR;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  int error = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environment);
  if (!error) tool = child;
  if (!error && stopped) kill(child, SIGTERM); /* before it was known */
  while (!error && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  tool = 0;
  posix_spawn_file_actions_destroy(&actions);
  return error ? -error : status;
}

/* The environment without preloaded libraries and library paths, such as a debugging build sets:
 * they may keep StarPU's tool from starting. A second try runs in this environment. */
static char **plain_environment(void) {
  static const char *const left_out[] = {"LD_PRELOAD=", "LD_LIBRARY_PATH="};
  size_t count = 0, kept = 0;
  while (environ[count]) count++;
  char **plain = calloc(count + 1, sizeof *plain);
  for (size_t i = 0; plain && i < count; i++)
    if (strncmp(environ[i], left_out[0], strlen(left_out[0])) != 0 &&
        strncmp(environ[i], left_out[1], strlen(left_out[1])) != 0)
      plain[kept++] = environ[i];
  return plain;
}

static bool worked(int status, const char *tasks) {
  return status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && exists(tasks);
}

static int run_tool(const char *folder, int count, char *const *files, const char *tasks,
                    const char *log) {
  static const char *const places[] = {"starpu_fxt_tool", SL_STARPU_BIN "/starpu_fxt_tool"};
  char **arguments = calloc((size_t)(2 * count + 6), sizeof *arguments);
  char **plain = plain_environment();
  int status = -ENOENT, at = 1;
  if (!arguments || !plain) status = -ENOMEM;
  if (!arguments || !plain) goto out;
  for (int i = 0; i < count; i++) {
    arguments[at++] = (char *)"-i";
    arguments[at++] = files[i];
  }
  arguments[at++] = (char *)"-d";
  arguments[at++] = (char *)folder;
  arguments[at] = (char *)"-use-task-color";
  unlink(tasks);
  for (int i = 0; i < 2 && !worked(status, tasks); i++) {
    arguments[0] = (char *)places[i];
    int own = spawn(arguments, environ, log);
    if (own >= 0 && !worked(own, tasks)) own = spawn(arguments, plain, log);
    bool found = own >= 0 ? !WIFEXITED(own) || WEXITSTATUS(own) != 127 : own != -ENOENT;
    if (found && status < 0) status = own;
  }
out:
  free(arguments);
  free(plain);
  return status;
}

/* Corrects two faults of StarPU 1.4 in the definition of a task: colours are from 0 to 255 where
 * readers of Paje's format need 0 to 1, and a name with blanks lacks its quotes. */
static void write_definition(FILE *out, const char *line) {
  double c[3];
  char alias[200], type[40], name[200];
  if (line[0] != '6' || sscanf(line, "6\t%199[^\t\"]\t%39[^\t]\t%199[^\t\"]\t\"%lf %lf %lf\"",
                               alias, type, name, &c[0], &c[1], &c[2]) != 6) {
    fputs(line, out);
    return;
  }
  double most = c[0] > 1 || c[1] > 1 || c[2] > 1 ? 255 : 1;
  fprintf(out, "6\t\"%s\"\t%s\t\"%s\"\t\"%.3f %.3f %.3f\"\n", alias, type, name, c[0] / most,
          c[1] / most, c[2] / most);
}

static void mend_definitions(const char *path) {
  char aside[PATH_MAX + 8], *line = NULL;
  size_t capacity = 0;
  snprintf(aside, sizeof aside, "%s.new", path);
  FILE *in = fopen(path, "r"), *out = in ? fopen(aside, "w") : NULL;
  while (out && getline(&line, &capacity, in) > 0) write_definition(out, line);
  free(line);
  if (in) fclose(in);
  if (!out) return;
  bool whole = !ferror(out);
  if (fclose(out) == 0 && whole)
    rename(aside, path);
  else
    unlink(aside);
}

static void fail_convert(const char *file, int status, const char *log, char *message,
                         size_t size) {
  char said[200];
  if (status == -ENOENT)
    snprintf(message, size,
             "%s: starpu_fxt_tool, which reads it, is neither in PATH nor in %s; is StarPU built "
             "with FxT?",
             file, *SL_STARPU_BIN ? SL_STARPU_BIN : "StarPU's folder");
  else if (status < 0)
    snprintf(message, size, "%s: starpu_fxt_tool, which reads it, cannot be started: %s", file,
             strerror(-status));
  else
    snprintf(message, size,
             "%s: starpu_fxt_tool cannot read it; is it cut short, or another StarPU's? (%s)", file,
             last_line(log, said, sizeof said));
}

/* The files are whole, or gone. A scratch folder is still of use, unless a signal came. */
static void settle_signals(struct source *source) {
  if (stopped)
    source_close(source);
  else if (!*source->scratch)
    release_signals();
}

/* A file of an earlier conversion: "tasks.rec.old" meanwhile. */
struct earlier {
  const char *path;
  char aside[PATH_MAX + 8];
  bool is_there;
};

static void set_aside(struct earlier *file, const char *path) {
  file->path = path;
  snprintf(file->aside, sizeof file->aside, "%s.old", path);
  file->is_there = rename(path, file->aside) == 0;
}

/* What the tool left of the file would be taken for a whole one later. */
static void put_back(const struct earlier *file) {
  unlink(file->path);
  if (file->is_there) rename(file->aside, file->path);
}

static void forget(const struct earlier *file) {
  if (file->is_there) unlink(file->aside);
}

static bool convert(const char *folder, int count, char *const *files, struct source *source,
                    char *message, size_t size) {
  char log[PATH_MAX];
  struct earlier tasks, paje; /* they stay if no others can be made */
  join(source->tasks, folder, "tasks.rec");
  join(source->paje, folder, "paje.trace");
  join(log, folder, "starpu_fxt_tool.log");
  catch_signals();
  set_aside(&tasks, source->tasks);
  set_aside(&paje, source->paje);
  source->is_new = true;
  int status = run_tool(folder, count, files, source->tasks, log);
  bool full = is_full(folder);
  if (worked(status, source->tasks) && !full) {
    unlink(log);
    forget(&tasks);
    forget(&paje);
    mend_definitions(source->paje);
    settle_signals(source);
    return true;
  }
  put_back(&tasks);
  put_back(&paje);
  settle_signals(source);
  if (full)
    snprintf(message, size,
             "%s: there is no space left for the files that starpu_fxt_tool makes of the trace",
             folder);
  else
    fail_convert(files[0], status, log, message, size);
  return false;
}

/* ---- paths from the command line ---- */

/* Escapes wildcards for glob(): "[a]" becomes "\\[a]". A path that is too long is cut; no trace can
 * be in such a folder. */
static const char *without_wildcards(const char *folder, char plain[PATH_MAX]) {
  size_t at = 0;
  for (const char *c = folder; *c && at + 2 < PATH_MAX; c++) {
    if (strchr("*?[\\", *c)) plain[at++] = '\\';
    plain[at++] = *c;
  }
  plain[at] = '\0';
  return plain;
}

/* A folder for files that are of no use later. */
static bool make_scratch(struct source *s, char *message, size_t size) {
  const char *base = getenv("TMPDIR");
  if (!base || !*base) base = "/tmp";
  join(s->scratch, base, "starling-XXXXXX");
  catch_signals();
  if (*s->scratch && mkdtemp(s->scratch)) return true;
  snprintf(message, size, "%s/starling-XXXXXX: cannot be made: %s", base,
           strerror(*s->scratch ? errno : ENAMETOOLONG));
  *s->scratch = '\0';
  return false;
}

/* Into the folder, so that it is done once, if that may be written. */
static bool convert_in(const char *folder, const glob_t *found, struct source *s, char *message,
                       size_t size) {
  if (access(folder, W_OK) != 0) {
    if (!make_scratch(s, message, size)) return false;
    folder = s->scratch;
  }
  return convert(folder, (int)found->gl_pathc, found->gl_pathv, s, message, size);
}

/* again: the files that were made of StarPU's are of no use. */
static bool open_folder(struct source *s, const char *folder, bool again, char *message,
                        size_t size) {
  char pattern[PATH_MAX], plain[PATH_MAX];
  glob_t found = {0};
  join(pattern, without_wildcards(folder, plain), "prof_file_*");
  glob(pattern, 0, NULL, &found);
  join(s->tasks, folder, "tasks.rec");
  join(s->paje, folder, "paje.trace");
  join(s->window, folder, "trace.window.json");
  if (!exists(s->window)) *s->window = '\0';
  bool fine = true, stale = false;
  s->has_own = found.gl_pathc > 0;
  for (size_t i = 0; i < found.gl_pathc; i++)
    stale |= again || is_newer(found.gl_pathv[i], s->tasks) || !exists(s->paje);
  if (stale) {
    fine = convert_in(folder, &found, s, message, size);
  } else if (!exists(s->tasks)) {
    join(pattern, folder, "rank0");
    snprintf(message, size,
             is_folder(pattern) ? "%s: has a folder for each rank; name one of them, such as %s"
                                : "%s: has neither prof_file_* nor tasks.rec; a trainer makes them "
                                  "with --trace %s",
             folder, is_folder(pattern) ? pattern : folder);
    fine = false;
  }
  if (!exists(s->paje)) *s->paje = '\0';
  globfree(&found);
  return fine;
}

bool source_renew(struct source *s, const char *folder) {
  char unused[PATH_MAX + 512];
  if (!s->has_own) return false;
  if (s->is_new) unlink(s->tasks);
  return !s->is_new && open_folder(s, folder, true, unused, sizeof unused);
}

static bool is_recutils(const char *path) {
  size_t length = strlen(path);
  return length > 4 && !strcmp(path + length - 4, ".rec");
}

bool source_open(struct source *s, int count, char *const *paths, char *message, size_t size) {
  *s = (struct source){0};
  for (int i = 0; i < count; i++)
    if (!exists(paths[i])) {
      snprintf(message, size, "%s: cannot be opened: %s", paths[i], strerror(errno));
      return false;
    }
  if (count == 1 && is_folder(paths[0])) return open_folder(s, paths[0], false, message, size);
  if (count == 1 && is_recutils(paths[0])) {
    snprintf(s->tasks, sizeof s->tasks, "%s", paths[0]);
    return true;
  }
  return make_scratch(s, message, size) && convert(s->scratch, count, paths, s, message, size);
}

static void remove_scratch(struct source *s) {
  char path[PATH_MAX];
  DIR *folder = opendir(s->scratch);
  struct dirent *entry;
  while (folder && (entry = readdir(folder))) {
    join(path, s->scratch, entry->d_name);
    if (entry->d_name[0] != '.') unlink(path);
  }
  if (folder) closedir(folder);
  rmdir(s->scratch);
  *s->scratch = '\0';
}

void source_close(struct source *s) {
  if (*s->scratch) remove_scratch(s);
  release_signals();
}

/* ---- the trainer's description of the recorded steps ---- */

bool window_read(const char *path, struct window *w, char *message, size_t size) {
  json_error_t error;
  json_int_t first, last;
  const char *format, *program;
  int version;
  *w = (struct window){0};
  json_t *root = sl__json_load_file(path, 0, &error);
  if (!root) {
    snprintf(message, size, "%s:%d: not JSON (%s); record the trace again", path, error.line,
             error.text);
    return false;
  }
  bool fine = json_unpack(root, "{s:s, s:i}", "format", &format, "version", &version) == 0 &&
              !strcmp(format, "starling trace window");
  if (!fine) snprintf(message, size, "%s: is not a trainer's trace window", path);
  if (fine && version != 1) {
    snprintf(message, size,
             "%s: has version %d, this starling-trace reads version 1; take the one "
             "that came with the trainer",
             path, version);
    fine = false;
  } else if (fine &&
             json_unpack(root, "{s:s, s:[I,I], s:F, s:F, s:i, s:i}", "program", &program, "steps",
                         &first, &last, "wall_ms", &w->wall_ms, "peak_gflops", &w->peak, "stages",
                         &w->stages, "microbatches", &w->microbatches) != 0) {
    snprintf(message, size,
             "%s: lacks members that a trainer's --trace writes; record the trace again", path);
    fine = false;
  }
  if (fine) {
    w->known = true;
    w->first = (long)first;
    w->last = (long)last;
    snprintf(w->program, sizeof w->program, "%s", program);
  }
  json_decref(root);
  return fine;
}
