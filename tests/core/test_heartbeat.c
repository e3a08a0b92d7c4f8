/* The heartbeat of a distributed run. Every rank is a process that takes commands, as lines on a
 * socket, and answers with lines; the test kills, stops and continues these processes. The timeout
 * is long in cases without a loss. It is short where the heartbeat must notice silence, and the
 * test waits much longer than that. */

#include <arpa/inet.h>
#include <endian.h>
#include <math.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/net/heartbeat.h"
#include "tests/common/harness.h"

enum { RANKS = 4, LINE = 2048, LONG = 60, WAIT = 30 /* seconds until a report is too late */ };

struct rank {
  pid_t process;
  int fd;
};
static struct rank ranks[RANKS];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(double seconds) { usleep((useconds_t)(seconds * 1e6)); }

/* ---- a rank ---- */

static void answer(int fd, const char *format, ...) SL_PRINTF(2, 3);
static void answer(int fd, const char *format, ...) {
  char line[LINE];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line - 1, format, list);
  va_end(list);
  strcat(line, "\n");
  if (send(fd, line, strlen(line), MSG_NOSIGNAL) < 0) _exit(3);
}

/* Reads a line without its newline; false at the end, or if there is none within `seconds`. */
static bool read_line(int fd, char line[LINE], double seconds) {
  double end = now() + seconds;
  for (size_t n = 0; n < LINE - 1;) {
    struct pollfd one = {fd, POLLIN, 0};
    int left = (int)((end - now()) * 1e3);
    if (left <= 0 || poll(&one, 1, left) < 0 || !one.revents) return false;
    if (read(fd, line + n, 1) != 1) return false;
    if (line[n] == '\n') {
      line[n] = 0;
      return true;
    }
    n++;
  }
  return false;
}

static const char *interface, *ports; /* of the next heartbeat */

static enum sl_status new_heartbeat(int rank, int size, double timeout,
                                    struct sl__heartbeat **heartbeat, char *address, size_t room) {
  const struct sl__heartbeat_options options = {timeout, interface, ports};
  return sl__heartbeat_new(rank, size, &options, heartbeat, address, room);
}

/* "new RANK SIZE TIMEOUT" -> address; "start ADDRESS" -> "ok" or the message; "work 1" has some
 * activity from now on; "lost" -> "RANK TEXT" when a loss is known, or "-" after the given time. */
static void obey(int fd, const char *line, struct sl__heartbeat **heartbeat, bool *working) {
  char text[SL__HEARTBEAT_ADDRESS];
  int rank, size;
  double seconds;
  if (sscanf(line, "new %d %d %lf", &rank, &size, &seconds) == 3) {
    enum sl_status status =
        new_heartbeat(rank, size, seconds, heartbeat, text, rank ? 0 : sizeof text);
    answer(fd, "%s", status != SL_OK ? sl_error() : rank ? "" : text);
  } else if (strncmp(line, "start ", 6) == 0) {
    enum sl_status status = sl__heartbeat_start(*heartbeat, line + 6);
    if (status == SL_OK)
      answer(fd, "ok");
    else
      answer(fd, "%s: %s", sl_status_name(status), sl_error());
  } else if (sscanf(line, "lost %lf", &seconds) == 1) {
    for (double end = now() + seconds; !sl__heartbeat_lost(*heartbeat) && now() < end;) nap(0.002);
    if (sl__heartbeat_text(*heartbeat, &rank, text, SL__HEARTBEAT_TEXT))
      answer(fd, "%d %s", rank, text);
    else
      answer(fd, "-");
  } else if (sscanf(line, "idle %d", &rank) == 1) {
    answer(fd, "%.9g", sl__heartbeat_idle(*heartbeat, rank));
  } else if (strncmp(line, "announce ", 9) == 0) {
    sl__heartbeat_announce(*heartbeat, line + 9);
    answer(fd, "ok");
  } else if (strcmp(line, "files") == 0) { /* it can open no more files */
    int next = dup(fd);
    close(next);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, (rlim_t)next});
    answer(fd, "ok");
  } else if (strcmp(line, "work") == 0) {
    *working = true;
    answer(fd, "ok");
  } else if (strcmp(line, "leave") == 0) {
    sl__heartbeat_leave(*heartbeat);
    answer(fd, "ok");
  } else if (strcmp(line, "free") == 0) {
    sl__heartbeat_free(*heartbeat);
    *heartbeat = NULL;
    answer(fd, "ok");
  } else {
    _exit(4);
  }
}

static void be_rank(int fd) {
  struct sl__heartbeat *heartbeat = NULL;
  bool working = false;
  char line[LINE];
  for (;;) {
    struct pollfd one = {fd, POLLIN, 0};
    if (poll(&one, 1, working ? 5 : -1) > 0) {
      if (!read_line(fd, line, LONG)) _exit(0);
      obey(fd, line, &heartbeat, &working);
    }
    if (working && heartbeat) sl__heartbeat_activity(heartbeat);
  }
}

/* ---- the test's side ---- */

static int make_ranks(void **state) {
  (void)state;
  for (int r = 0; r < RANKS; r++) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 1;
    pid_t process = fork();
    if (process < 0) return 1;
    if (!process) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(240);
      for (int other = 0; other < r; other++) close(ranks[other].fd);
      close(ends[0]);
      be_rank(ends[1]);
    }
    close(ends[1]);
    ranks[r] = (struct rank){process, ends[0]};
  }
  return 0;
}

static int end_ranks(void **state) {
  (void)state;
  for (int r = 0; r < RANKS; r++) {
    if (ranks[r].process <= 0) continue;
    kill(ranks[r].process, SIGKILL);
    waitpid(ranks[r].process, NULL, 0);
    close(ranks[r].fd);
    ranks[r].process = 0;
  }
  return 0;
}

static void tell(int rank, const char *format, ...) SL_PRINTF(2, 3);
static void tell(int rank, const char *format, ...) {
  char line[LINE];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line - 1, format, list);
  va_end(list);
  strcat(line, "\n");
  assert_int_equal(send(ranks[rank].fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
}

static const char *hear(int rank) {
  static char lines[RANKS][LINE];
  if (!read_line(ranks[rank].fd, lines[rank], 2 * LONG)) fail_msg("rank %d says nothing", rank);
  return lines[rank];
}

static void hear_ok(int rank) {
  const char *said = hear(rank);
  if (strcmp(said, "ok") != 0) fail_msg("rank %d: %s", rank, said);
}

static const char *make(int size, double timeout, char address[LINE]) {
  for (int r = 0; r < size; r++) tell(r, "new %d %d %g", r, size, timeout);
  snprintf(address, LINE, "%s", hear(0));
  for (int r = 1; r < size; r++) assert_string_equal(hear(r), "");
  return address;
}

static void start(int size, double timeout) {
  char address[LINE];
  make(size, timeout, address);
  for (int r = 0; r < size; r++) tell(r, "start %s", r ? address : "");
  for (int r = 0; r < size; r++) hear_ok(r);
}

static void nobody_lost(int rank, double seconds) {
  tell(rank, "lost %g", seconds);
  assert_string_equal(hear(rank), "-");
}

/* This rank reports in time that `lost` is lost; the text names that rank and has these words. */
static const char *knows(int rank, int lost, const char *words) {
  char name[64];
  tell(rank, "lost %d", WAIT);
  const char *said = hear(rank);
  snprintf(name, sizeof name, "%d rank %d (", lost, lost);
  if (strncmp(said, name, strlen(name)) != 0 || !strstr(said, words))
    fail_msg("rank %d says '%s' rather than that rank %d %s", rank, said, lost, words);
  snprintf(name, sizeof name, ", process %d) ", (int)ranks[lost].process);
  assert_non_null(strstr(said, name));
  return said;
}

static double idle(int rank, int of) {
  tell(rank, "idle %d", of);
  return atof(hear(rank));
}

/* ---- the cases ---- */

static void leaving_is_no_loss(void **state) {
  (void)state;
  static const int orders[3][RANKS] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}};
  for (int k = 0; k < 3; k++) {
    start(RANKS, LONG);
    for (int i = 0; i < RANKS; i++) { /* each ends before the next one sends BYE */
      int r = orders[k][i];
      nobody_lost(r, 0);
      tell(r, "leave");
      hear_ok(r);
      tell(r, "free");
      hear_ok(r);
      for (int j = i + 1; j < RANKS; j++) nobody_lost(orders[k][j], 0.05);
    }
  }
}

/* BYE, and then at once the end of the process. */
static void leaving_and_dying_is_no_loss(void **state) {
  (void)state;
  start(RANKS, LONG);
  for (int r = 0; r < RANKS - 1; r++) {
    tell(r, "leave");
    hear_ok(r);
    kill(ranks[r].process, SIGKILL);
    for (int j = r + 1; j < RANKS; j++) nobody_lost(j, 0.1);
  }
}

/* BYE, and then silence for longer than the timeout, as from a slow end of MPI. */
static void leaving_and_stopping_is_no_loss(void **state) {
  (void)state;
  start(2, 2);
  tell(1, "leave");
  hear_ok(1);
  kill(ranks[1].process, SIGSTOP);
  nobody_lost(0, 3.5);
  kill(ranks[1].process, SIGCONT);
}

static void a_killed_rank_is_lost(void **state) {
  (void)state;
  char text[LINE];
  start(RANKS, LONG);
  for (int r = 0; r < RANKS; r++) nobody_lost(r, 0.05);
  kill(ranks[1].process, SIGKILL);
  snprintf(text, sizeof text, "%s", knows(0, 1, "its connection was closed"));
  assert_string_equal(knows(2, 1, "was lost at "), text);
  assert_string_equal(knows(3, 1, "was lost at "), text);
  kill(ranks[3].process, SIGKILL); /* the first loss stays */
  nap(0.2);
  assert_string_equal(knows(0, 1, "was lost at "), text);
  assert_string_equal(knows(2, 1, "was lost at "), text);
}

static void a_freed_heartbeat_is_lost(void **state) {
  (void)state;
  start(3, LONG);
  tell(2, "free");
  hear_ok(2);
  knows(0, 2, "its connection was closed");
  knows(1, 2, "its connection was closed");
}

static void killed_rank_0_is_lost(void **state) {
  (void)state;
  start(RANKS, LONG);
  kill(ranks[0].process, SIGKILL);
  for (int r = 1; r < RANKS; r++) knows(r, 0, "its connection was closed");
}

static void a_stopped_rank_is_lost(void **state) {
  (void)state;
  char text[LINE];
  start(3, 2);
  kill(ranks[2].process, SIGSTOP);
  snprintf(text, sizeof text, "%s", knows(0, 2, "has not been heard of since "));
  assert_string_equal(knows(1, 2, "has not been heard of since "), text);
  kill(ranks[2].process, SIGCONT); /* it learns that it counts as lost, and reports no other rank */
  assert_string_equal(knows(2, 2, "has not been heard of since "), text);
}

static void stopped_rank_0_is_lost(void **state) {
  (void)state;
  start(3, 2);
  kill(ranks[0].process, SIGSTOP);
  for (int r = 1; r < 3; r++) knows(r, 0, "has not been heard of since ");
  kill(ranks[0].process, SIGCONT);
  tell(0, "lost %d", WAIT);
  assert_non_null(strstr(hear(0), ") failed: rank 0 ("));
}

static void a_short_stop_harms_nobody(void **state) {
  (void)state;
  start(3, LONG);
  for (int r = 0; r < 3; r++) kill(ranks[r].process, SIGSTOP), nap(0.2);
  for (int r = 0; r < 3; r++) kill(ranks[r].process, SIGCONT);
  for (int r = 0; r < 3; r++) nobody_lost(r, 0.2);
}

/* All ranks stop for longer than the timeout, as a shell stops a job: the first one to continue
 * must not report the others as lost. */
static void stopping_all_harms_nobody(void **state) {
  (void)state;
  start(3, 4);
  for (int r = 0; r < 3; r++) kill(ranks[r].process, SIGSTOP);
  nap(5.5);
  for (int r = 0; r < 3; r++) kill(ranks[r].process, SIGCONT), nap(0.3);
  for (int r = 0; r < 3; r++) nobody_lost(r, 1);
}

static void an_announced_failure_is_told_to_all(void **state) {
  (void)state;
  for (int failing = 0; failing < 2; failing++) {
    char text[LINE], words[LINE];
    start(RANKS, LONG);
    tell(failing, "announce step %d: the loss is not finite", 7 + failing);
    hear_ok(failing);
    snprintf(words, sizeof words, ") failed: step %d: the loss is not finite", 7 + failing);
    snprintf(text, sizeof text, "%s", knows(failing, failing, words));
    for (int r = 0; r < RANKS; r++) assert_string_equal(knows(r, failing, words), text);
    for (int r = 0; r < RANKS; r++) tell(r, "free");
    for (int r = 0; r < RANKS; r++) hear_ok(r);
  }
}

/* A failure, and then at once the end of the process; and a long text is cut. */
static void a_failure_outlives_its_process(void **state) {
  (void)state;
  char why[1500];
  memset(why, 'x', sizeof why);
  memcpy(why, "very long ", 10);
  why[sizeof why - 1] = 0;
  start(3, LONG);
  tell(1, "announce %s", why);
  hear_ok(1);
  kill(ranks[1].process, SIGKILL);
  knows(0, 1, ") failed: very long xxx");
  knows(2, 1, ") failed: very long xxx");
}

static bool idle_as_they_are(int rank) {
  return idle(rank, 0) > 4 && idle(rank, 1) > 4 && idle(rank, 2) < 3;
}

static void idleness_is_told(void **state) {
  (void)state;
  start(3, LONG);
  tell(2, "work");
  hear_ok(2);
  double end = now() + WAIT;
  for (int r = 0; r < 3; r++)
    for (; !idle_as_they_are(r); nap(0.05))
      if (now() > end)
        fail_msg("rank %d thinks that the others are idle for %g, %g and %g s", r, idle(r, 0),
                 idle(r, 1), idle(r, 2));
  tell(1, "leave");
  hear_ok(1);
  /* a rank that has left counts as idle, so that a rank that waits for it gives up */
  double before[3] = {idle(0, 1), 0, idle(2, 1)};
  for (; idle(0, 1) <= before[0] || idle(2, 1) <= before[2]; nap(0.05)) assert_true(now() < end);
}

enum { KEY = 32, NONCE = 16, HELLO = 12 + NONCE + 76 + 32, CHALLENGE = 12 + NONCE };

/* The run's key, as the address has it. */
static void read_key(const char *address, uint8_t key[KEY]) {
  for (int i = 0; i < KEY; i++) {
    unsigned byte;
    assert_int_equal(sscanf(address + 2 * i, "%2x", &byte), 1);
    key[i] = (uint8_t)byte;
  }
}

static int port_of(const char *address) { return atoi(address + 2 * KEY); }

static int connect_to(const char *address) {
  struct sockaddr_in to = {.sin_family = AF_INET};
  to.sin_port = htons((uint16_t)port_of(address));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  return fd;
}

/* Reads the CHALLENGE; its random number goes to nonce. */
static void read_challenge(int fd, uint8_t nonce[NONCE]) {
  uint8_t got[CHALLENGE];
  assert_int_equal(recv(fd, got, sizeof got, MSG_WAITALL), sizeof got);
  memcpy(nonce, got + 12, NONCE);
}

/* Does the other side close in time, without an answer before? */
static bool is_closed(int fd) {
  char byte;
  struct pollfd one = {fd, POLLIN, 0};
  return poll(&one, 1, WAIT * 1000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

/* The HELLO of a rank that has this key, as an answer to this challenge. */
static void write_hello(uint8_t hello[HELLO], const uint8_t key[KEY],
                        const uint8_t challenge[NONCE], uint32_t size, uint32_t rank) {
  uint32_t words[] = {htole32(0x32574c53), htole32(2), htole32(HELLO - 12)};
  uint32_t who[] = {htole32(size), htole32(rank), htole32(4711)};
  uint8_t text[1 + 2 * NONCE + 76] = {2}; /* the kind, both random numbers, the body */
  memset(hello, 0, HELLO);
  memcpy(hello, words, 12);
  memset(hello + 12, 5, NONCE);
  memcpy(hello + 12 + NONCE, who, 12);
  memcpy(hello + 12 + NONCE + 12, "elsewhere", 9);
  memcpy(text + 1, challenge, NONCE);
  memcpy(text + 1 + NONCE, hello + 12, NONCE);
  memcpy(text + 1 + 2 * NONCE, hello + 12 + NONCE, 76);
  HMAC(EVP_sha256(), key, KEY, text, sizeof text, hello + 12 + NONCE + 76, NULL);
}

static void strangers_do_no_harm(void **state) {
  (void)state;
  enum { STRANGERS = 6 };
  char address[LINE], welcome[12];
  uint8_t noise[96], hello[HELLO], key[KEY], other_key[KEY], challenge[STRANGERS][NONCE];
  make(3, LONG, address);
  read_key(address, key);
  memcpy(other_key, key, KEY);
  other_key[KEY - 1] ^= 1;
  tell(0, "start ");
  int silent = connect_to(address), half = connect_to(address), gone = connect_to(address);
  int fds[STRANGERS];
  for (int k = 0; k < STRANGERS; k++) {
    fds[k] = connect_to(address);
    read_challenge(fds[k], challenge[k]);
  }
  assert_memory_not_equal(challenge[0], challenge[1], NONCE);
  for (int i = 0; i < 96; i++) noise[i] = (uint8_t)(i * 37 + 11);
  send(fds[0], noise, 96, MSG_NOSIGNAL);
  write_hello(hello, other_key, challenge[1], 3, 1); /* another job's */
  send(fds[1], hello, HELLO, MSG_NOSIGNAL);
  write_hello(hello, key, challenge[2], 3, 3); /* no such rank */
  send(fds[2], hello, HELLO, MSG_NOSIGNAL);
  write_hello(hello, key, challenge[3], 3, 1);
  memset(hello + 8, 255, 4); /* four gigabytes will follow */
  send(fds[3], hello, HELLO, MSG_NOSIGNAL);
  write_hello(hello, key, challenge[4], 3, 1);
  hello[4] = 9; /* FAILED without a HELLO before */
  send(fds[4], hello, HELLO, MSG_NOSIGNAL);
  write_hello(hello, key, challenge[4], 3, 1); /* overheard on another connection */
  send(fds[5], hello, HELLO, MSG_NOSIGNAL);
  for (int k = 0; k < STRANGERS; k++)
    if (!is_closed(fds[k])) fail_msg("stranger %d was not sent away", k);
  send(half, hello, 50, MSG_NOSIGNAL);
  read_challenge(gone, challenge[0]);
  write_hello(hello, key, challenge[0], 3, 1);
  send(gone, hello, HELLO, MSG_NOSIGNAL); /* welcomed, and yet it is not rank 1 */
  assert_int_equal(recv(gone, welcome, sizeof welcome, MSG_WAITALL), sizeof welcome);
  for (int r = 1; r < 3; r++) tell(r, "start %s", address);
  for (int r = 0; r < 3; r++) hear_ok(r);
  close(gone);
  for (int r = 0; r < 3; r++) nobody_lost(r, 0.2);
  for (int k = 0; k < STRANGERS; k++) close(fds[k]);
  close(silent), close(half);
  kill(ranks[1].process, SIGKILL);
  knows(0, 1, "its connection was closed");
  knows(2, 1, "its connection was closed");
}

/* Connections that never say a word, more than rank 0 has room for, do not keep the ranks out. */
static void many_strangers_do_no_harm(void **state) {
  (void)state;
  enum { MANY = 200 };
  char address[LINE];
  int fds[MANY];
  make(RANKS, LONG, address);
  tell(0, "start ");
  for (int k = 0; k < MANY; k++) fds[k] = connect_to(address);
  double begin = now();
  for (int r = 1; r < RANKS; r++) tell(r, "start %s", address);
  for (int r = 0; r < RANKS; r++) hear_ok(r);
  if (now() - begin > 4)
    fail_msg("the ranks needed %g s: as long as strangers may be silent", now() - begin);
  for (int k = 0; k < MANY; k++) close(fds[k]);
  for (int r = 0; r < RANKS; r++) nobody_lost(r, 0.1);
}

/* A listening socket on the loopback, and its port. */
static int listen_somewhere(int *port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
  assert_int_equal(listen(fd, 8), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
  *port = ntohs(at.sin_port);
  return fd;
}

/* A program at rank 0's address that does not know the key answers as rank 0 would, with a code of
 * its own: the rank does not believe it. */
static void an_impostor_is_not_rank_0(void **state) {
  (void)state;
  char address[LINE], false_address[2 * LINE];
  uint8_t hello[HELLO], welcome[12 + 68 + 32] = {0}, challenge[CHALLENGE] = {0};
  int port;
  make(2, 2, address);
  int server = listen_somewhere(&port);
  snprintf(false_address, sizeof false_address, "%.*s %d%s", 2 * KEY, address, port,
           strchr(address + 2 * KEY + 1, ' '));
  tell(1, "start %s", false_address);
  int fd = accept(server, NULL, NULL);
  memcpy(challenge, (uint32_t[]){htole32(0x32574c53), htole32(1), htole32(NONCE)}, 12);
  send(fd, challenge, sizeof challenge, MSG_NOSIGNAL);
  assert_int_equal(recv(fd, hello, sizeof hello, MSG_WAITALL), sizeof hello);
  uint8_t key[KEY];
  read_key(address, key);
  assert_null(memmem(hello, sizeof hello, key, 8)); /* the key does not travel */
  memcpy(welcome, (uint32_t[]){htole32(0x32574c53), htole32(3), htole32(100)}, 12);
  send(fd, welcome, sizeof welcome, MSG_NOSIGNAL);
  assert_true(is_closed(fd));
  close(fd);
  close(server);
  const char *said = hear(1);
  if (!strstr(said, "IO: rank 1 (")) fail_msg("rank 1 says '%s'", said);
}

/* Rank 0 listens where it is told to, and at one of these ports. */
static void interfaces_and_ports_are_kept(void **state) {
  (void)state;
  struct sl__heartbeat *heartbeat, *second;
  char address[SL__HEARTBEAT_ADDRESS], range[32];
  int port;
  int busy = listen_somewhere(&port);
  interface = "lo";
  snprintf(range, sizeof range, "%d-%d", port, port < 65000 ? port + 50 : port);
  ports = range;
  OK(new_heartbeat(0, 2, 1, &heartbeat, address, sizeof address));
  assert_true(port_of(address) > port && port_of(address) <= port + 50);
  assert_string_equal(strrchr(address, ' '), " 127.0.0.1");
  assert_non_null(strchr(address, '-')); /* the boot's id */
  snprintf(range, sizeof range, "%d", port_of(address));
  FAILS(new_heartbeat(0, 2, 1, &second, address, sizeof address), SL_IO, "at a port of");
  sl__heartbeat_free(heartbeat);
  close(busy);
  static const char *const wrong[] = {"0", "70000", "5-4", "x", "", "1-", "1,2"};
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
    ports = wrong[k];
    FAILS(new_heartbeat(0, 2, 1, &heartbeat, address, sizeof address), SL_BAD_ARGUMENT,
          "FIRST-LAST");
  }
  ports = NULL;
  interface = "no-such-one";
  FAILS(new_heartbeat(0, 2, 1, &heartbeat, address, sizeof address), SL_BAD_ARGUMENT,
        "no-such-one");
  interface = NULL;
}

/* A message in two halves is one message: the second half of the hello comes later. */
static void halves_make_a_whole(void **state) {
  (void)state;
  char address[LINE];
  uint8_t hello[HELLO], key[KEY], challenge[NONCE], got[12 + 68 + 32];
  uint32_t ready[] = {htole32(0x32574c53), htole32(4), 0}, garbage[3] = {1, 2, 3};
  make(2, LONG, address);
  read_key(address, key);
  tell(0, "start ");
  int fd = connect_to(address);
  read_challenge(fd, challenge);
  write_hello(hello, key, challenge, 2, 1);
  for (int i = 0; i < HELLO; i += 7) {
    send(fd, hello + i, i + 7 > HELLO ? (size_t)(HELLO - i) : 7, MSG_NOSIGNAL);
    nap(0.005);
  }
  assert_int_equal(recv(fd, got, sizeof got, MSG_WAITALL), sizeof got);
  send(fd, ready, sizeof ready, MSG_NOSIGNAL);
  assert_int_equal(recv(fd, got, 12, MSG_WAITALL), 12);
  hear_ok(0);
  nobody_lost(0, 0.05);
  send(fd, garbage, sizeof garbage, MSG_NOSIGNAL); /* garbage from a known rank is a loss */
  tell(0, "lost %d", WAIT);
  const char *said = hear(0);
  assert_non_null(strstr(said, "1 rank 1 (elsewhere, process 4711) was lost at "));
  assert_non_null(strstr(said, ": it sent what is no message"));
  close(fd);
}

static void a_missing_rank_fails_the_start(void **state) {
  (void)state;
  char address[LINE];
  make(RANKS, 3, address);
  tell(0, "start ");
  tell(1, "start %s", address);
  tell(3, "start %s", address);
  for (int r = 0; r < RANKS; r++) {
    if (r == 2) continue;
    const char *said = hear(r);
    if (!strstr(said, "IO: rank 2 did not connect to the heartbeat of rank 0") ||
        !strstr(said, "without a timeout"))
      fail_msg("rank %d says '%s'", r, said);
  }
}

static void too_few_files_fail_the_start(void **state) {
  (void)state;
  char address[LINE];
  make(2, LONG, address);
  tell(0, "files");
  hear_ok(0);
  tell(0, "start ");
  tell(1, "start %s", address);
  const char *said = hear(0);
  if (!strstr(said, "Too many open files") || !strstr(said, "ulimit -n")) fail_msg("%s", said);
}

static void a_missing_rank_0_fails_the_start(void **state) {
  (void)state;
  char address[LINE];
  make(2, 0.5, address);
  tell(0, "free");
  hear_ok(0);
  tell(1, "start %s", address);
  const char *said = hear(1);
  assert_non_null(strstr(said, "IO: rank 1 ("));
  assert_non_null(strstr(said, "127.0.0.1 (Connection refused)"));
  assert_non_null(strstr(said, "without a timeout"));
}

/* Rank 0 is late: it has been listening since its address exists, so the others can connect. */
static void a_late_rank_0_is_waited_for(void **state) {
  (void)state;
  char address[LINE];
  make(3, 8, address);
  for (int r = 1; r < 3; r++) tell(r, "start %s", address);
  nap(3);
  tell(0, "start ");
  for (int r = 0; r < 3; r++) hear_ok(r);
  for (int r = 0; r < 3; r++) nobody_lost(r, 0.2);
}

#define TEST_KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
static void arguments_are_checked(void **state) {
  (void)state;
  struct sl__heartbeat *heartbeat;
  char address[LINE];
  assert_int_equal(new_heartbeat(2, 2, 1, &heartbeat, NULL, 0), SL_BAD_ARGUMENT);
  assert_int_equal(new_heartbeat(-1, 2, 1, &heartbeat, NULL, 0), SL_BAD_ARGUMENT);
  assert_int_equal(new_heartbeat(0, 2, 0, &heartbeat, address, sizeof address), SL_BAD_ARGUMENT);
  assert_int_equal(new_heartbeat(0, 2, NAN, &heartbeat, address, sizeof address), SL_BAD_ARGUMENT);
  assert_int_equal(new_heartbeat(0, 2, 1, &heartbeat, address, 20), SL_BAD_ARGUMENT);
  assert_null(heartbeat);
  static const char *const wrong[] = {"",
                                      "x",
                                      "12 34 host - 127.0.0.1", /* a key that is too short */
                                      TEST_KEY " 34",
                                      TEST_KEY " 34 host -",
                                      TEST_KEY " 34 host - 1.2.3.4.5",
                                      TEST_KEY " 99 host - 127.0.0.1 what",
                                      "z" TEST_KEY " 34 host - 127.0.0.1"};
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
    OK(new_heartbeat(1, 2, 1, &heartbeat, NULL, 0));
    assert_int_equal(sl__heartbeat_start(heartbeat, wrong[k]), SL_BAD_ARGUMENT);
    assert_int_equal(sl__heartbeat_start(heartbeat, wrong[k]), SL_BAD_ARGUMENT);
    sl__heartbeat_free(heartbeat);
  }
  sl__heartbeat_free(NULL);
}

/* A single rank has no other to lose; and all memory is freed, whichever allocation fails.
 */
static void one_rank_and_no_memory(void **state) {
  (void)state;
  struct sl__heartbeat *heartbeat;
  char address[SL__HEARTBEAT_ADDRESS], text[SL__HEARTBEAT_TEXT];
  enum sl_status status = SL_NO_MEMORY;
  for (int n = 1; status == SL_NO_MEMORY; n++) {
    sl__alloc_fail_after(n);
    status = new_heartbeat(0, 1, LONG, &heartbeat, address, sizeof address);
  }
  sl__alloc_fail_after(0);
  OK(status);
  OK(sl__heartbeat_start(heartbeat, NULL));
  sl__heartbeat_activity(heartbeat);
  assert_true(sl__heartbeat_idle(heartbeat, 0) < WAIT);
  assert_true(sl__heartbeat_idle(heartbeat, 7) == 0);
  assert_false(sl__heartbeat_lost(heartbeat));
  assert_false(sl__heartbeat_text(heartbeat, NULL, text, sizeof text));
  sl__heartbeat_announce(heartbeat, "no\nreason");
  assert_true(sl__heartbeat_text(heartbeat, NULL, text, sizeof text));
  assert_non_null(strstr(text, "failed: no reason"));
  sl__heartbeat_leave(heartbeat);
  sl__heartbeat_leave(heartbeat);
  sl__heartbeat_free(heartbeat);
}

int main(void) {
#define WITH_RANKS(name) cmocka_unit_test_setup_teardown(name, make_ranks, end_ranks)
  const struct CMUnitTest tests[] = {
      WITH_RANKS(leaving_is_no_loss),
      WITH_RANKS(leaving_and_dying_is_no_loss),
      WITH_RANKS(leaving_and_stopping_is_no_loss),
      WITH_RANKS(a_killed_rank_is_lost),
      WITH_RANKS(a_freed_heartbeat_is_lost),
      WITH_RANKS(killed_rank_0_is_lost),
      WITH_RANKS(a_stopped_rank_is_lost),
      WITH_RANKS(stopped_rank_0_is_lost),
      WITH_RANKS(a_short_stop_harms_nobody),
      WITH_RANKS(stopping_all_harms_nobody),
      WITH_RANKS(an_announced_failure_is_told_to_all),
      WITH_RANKS(a_failure_outlives_its_process),
      WITH_RANKS(idleness_is_told),
      WITH_RANKS(strangers_do_no_harm),
      WITH_RANKS(many_strangers_do_no_harm),
      WITH_RANKS(an_impostor_is_not_rank_0),
      WITH_RANKS(halves_make_a_whole),
      WITH_RANKS(a_missing_rank_fails_the_start),
      WITH_RANKS(too_few_files_fail_the_start),
      WITH_RANKS(a_missing_rank_0_fails_the_start),
      WITH_RANKS(a_late_rank_0_is_waited_for),
      cmocka_unit_test(interfaces_and_ports_are_kept),
      cmocka_unit_test(arguments_are_checked),
      cmocka_unit_test(one_rank_and_no_memory),
  };
  alarm(280); /* the ranks end with this process */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
