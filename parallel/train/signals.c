/* Signals that end a run orderly. Handlers belong to the process, not to a context: hence the
 * variables of this file. */
#include "parallel/train/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

#include <starling/fit.h>

static volatile sig_atomic_t caught;
static volatile sig_atomic_t first_second; /* of the monotonic clock, when it came */

/* The first signal ends the run orderly, a later one at once. A signal within the same second
 * counts as the first one: timeout(1) and batch systems signal a process and its group. */
static void on_signal(int number) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!caught) {
    caught = number;
    first_second = (sig_atomic_t)now.tv_sec;
  } else if ((sig_atomic_t)now.tv_sec - first_second > 1) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

/* mpirun passes SIGUSR1 on; on other signals it kills the ranks. */
static const int ending[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
/* Writing beyond a limit, and into a pipe that is no longer read, then returns an error. */
static const int ignored[] = {SIGXFSZ, SIGPIPE};
enum { ENDING = sizeof ending / sizeof *ending, IGNORED = sizeof ignored / sizeof *ignored };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users; /* calls of sl_signals_catch that were not undone */
static struct sigaction before[ENDING + IGNORED];

static void catch_all(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  sigfillset(&action.sa_mask);
  sigemptyset(&ignore.sa_mask);
  for (int i = 0; i < ENDING; i++) {
    sigaction(ending[i], NULL, &before[i]);
    /* nohup ignores SIGHUP */
    if (ending[i] != SIGHUP || before[i].sa_handler != SIG_IGN) sigaction(ending[i], &action, NULL);
  }
  for (int i = 0; i < IGNORED; i++) sigaction(ignored[i], &ignore, &before[ENDING + i]);
}

static void restore_all(void) {
  for (int i = 0; i < ENDING; i++) sigaction(ending[i], &before[i], NULL);
  for (int i = 0; i < IGNORED; i++) sigaction(ignored[i], &before[ENDING + i], NULL);
}

void sl_signals_catch(void) {
  pthread_mutex_lock(&lock);
  if (!users++) {
    caught = 0;
    catch_all();
  }
  pthread_mutex_unlock(&lock);
}

void sl_signals_release(void) {
  pthread_mutex_lock(&lock);
  if (users && !--users) restore_all();
  pthread_mutex_unlock(&lock);
}

int sl_signals_caught(void) { return caught; }

bool sl__signals_ask_stop(void) {
  pthread_mutex_lock(&lock);
  bool asks = users && caught;
  pthread_mutex_unlock(&lock);
  return asks;
}

const char *sl__signal_text(int number) {
  return number == SIGINT    ? "Ctrl-C (SIGINT)"
         : number == SIGTERM ? "SIGTERM"
         : number == SIGHUP  ? "SIGHUP"
         : number == SIGUSR1 ? "SIGUSR1"
                             : NULL;
}
