#include "tools/common/abort_message.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <starling.h>

#include "tools/common/command_line.h"

static char prefix[128]; /* a handler gets no argument */
static volatile sig_atomic_t told;
static struct sigaction before;

/* An abort() for another reason: StarPU's handler, then the system's. */
static void pass_on(int number) {
  sigaction(number, &before, NULL);
  raise(number);
}

static void on_abort(int number) {
  char line[1200];
  size_t length = strlen(prefix);
  memcpy(line, prefix, length);
  if (!sl_last_words(line + length, sizeof line - length - 1)) {
    pass_on(number);
    return;
  }
  length = strlen(line);
  line[length++] = '\n';
  if (!told && write(STDERR_FILENO, line, length) < 0) _exit(EXIT_FAILED);
  _exit(EXIT_FAILED);
}

void aborted_catch(const char *program, int rank) {
  struct sigaction action = {.sa_handler = on_abort, .sa_flags = SA_NODEFER};
  if (rank)
    snprintf(prefix, sizeof prefix, "%.64s: rank %d: ", program, rank);
  else
    snprintf(prefix, sizeof prefix, "%.64s: ", program);
  sigemptyset(&action.sa_mask);
  sigaction(SIGABRT, &action, &before);
}

void aborted_told(void) { told = 1; }
