#include "parallel/fit/interruption.h"

#include <signal.h>
#include <time.h>

static volatile sig_atomic_t interrupted;

/* The first signal ends the run orderly, a later one at once. A signal within the same second
 * counts as the first one: timeout(1) and batch systems signal a process and its group. */
static void on_signal(int number) {
  static struct timespec first;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!interrupted) {
    interrupted = number;
    first = now;
  } else if (now.tv_sec - first.tv_sec > 1) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

void interruption_catch(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigfillset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL); /* mpirun passes it on; on other signals it kills the ranks */
  struct sigaction hangup;
  sigaction(SIGHUP, NULL, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL); /* nohup ignores it */
  signal(SIGXFSZ, SIG_IGN); /* writing beyond the limit then returns an error */
  signal(SIGPIPE, SIG_IGN); /* so does writing into a pipe that is no longer read */
}

bool interruption_came(void) { return interrupted != 0; }

const char *interruption_name(void) {
  return interrupted == SIGINT    ? "Ctrl-C (SIGINT)"
         : interrupted == SIGTERM ? "SIGTERM"
         : interrupted == SIGHUP  ? "SIGHUP"
         : interrupted == SIGUSR1 ? "SIGUSR1"
                                  : "another rank";
}

void interruption_end(void) {
  signal(interrupted, SIG_DFL);
  raise(interrupted);
}
