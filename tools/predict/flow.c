/* Requests under way: one thread reads and sends, another waits for the oldest and prints it, and
 * the devices have several in between. */
#include <pthread.h>
#include <stdlib.h>

#include "tools/predict/predict.h"

enum { BUDGET = 1 << 28, KEPT = 1 << 20 };

struct flow {
  struct slot *slots; /* a ring: sent - done of them are under way */
  int count;
  size_t bytes; /* that those of lines hold */
  int64_t sent, done;
  flow_print print;
  void *user;
  int code; /* what failed first ends it */
  bool closing;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t news;
};

static void free_buffers(struct slot *slot) {
  free(slot->inputs);
  free(slot->outputs);
  free(slot->targets);
  slot->inputs = slot->outputs = NULL;
  slot->targets = NULL;
  slot->room = 0;
}

static int finish(struct flow *f, struct slot *slot, bool failed) {
  enum sl_status status = sl_predict_wait(slot->request);
  slot->request = NULL;
  if (failed) return EXIT_FAILED; /* it has been said why */
  return status == SL_OK ? f->print(f->user, slot) : fail_library(status);
}

static void *work(void *argument) {
  struct flow *f = argument;
  pthread_mutex_lock(&f->lock);
  while (f->sent > f->done || !f->closing) {
    if (f->sent == f->done) {
      /* nothing to wait for but the reader: what there is goes out */
      pthread_mutex_unlock(&f->lock);
      int code = print_end();
      pthread_mutex_lock(&f->lock);
      if (!f->code) f->code = code;
      while (f->sent == f->done && !f->closing) pthread_cond_wait(&f->news, &f->lock);
      continue;
    }
    struct slot *slot = &f->slots[f->done % f->count];
    bool failed = f->code != EXIT_DONE;
    pthread_mutex_unlock(&f->lock);
    int code = finish(f, slot, failed);
    if (slot->bytes > KEPT) free_buffers(slot);
    pthread_mutex_lock(&f->lock);
    f->bytes -= slot->bytes;
    if (!f->code) f->code = code;
    f->done++;
    pthread_cond_signal(&f->news);
  }
  pthread_mutex_unlock(&f->lock);
  return NULL;
}

struct flow *flow_open(int slots, flow_print print, void *user) {
  struct flow *f = calloc(1, sizeof *f);
  if (f) *f = (struct flow){.count = slots, .print = print, .user = user};
  if (f) f->slots = calloc((size_t)slots, sizeof *f->slots);
  if (!f || !f->slots) {
    free(f);
    fail_memory();
    return NULL;
  }
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->news, NULL);
  if (!pthread_create(&f->thread, NULL, work, f)) return f;
  fail(EXIT_FAILED, "no thread could be started for the output");
  free(f->slots);
  free(f);
  return NULL;
}

static bool is_full(const struct flow *f, size_t bytes) {
  return f->sent - f->done == f->count || (f->sent > f->done && f->bytes + bytes > BUDGET);
}

struct slot *flow_slot(struct flow *f, size_t bytes) {
  pthread_mutex_lock(&f->lock);
  while (is_full(f, bytes)) pthread_cond_wait(&f->news, &f->lock);
  bool failed = f->code != EXIT_DONE;
  pthread_mutex_unlock(&f->lock);
  struct slot *slot = &f->slots[f->sent % f->count];
  slot->bytes = bytes;
  return failed ? NULL : slot;
}

bool flow_send(struct flow *f, struct slot *slot) {
  enum sl_status status =
      sl_predict_submit(slot->predictor, slot->inputs, slot->n, slot->outputs, &slot->request);
  if (status != SL_OK) return fail_library(status), false;
  pthread_mutex_lock(&f->lock);
  f->sent++;
  f->bytes += slot->bytes;
  pthread_cond_signal(&f->news);
  pthread_mutex_unlock(&f->lock);
  return true;
}

int flow_close(struct flow *f) {
  pthread_mutex_lock(&f->lock);
  f->closing = true;
  pthread_cond_signal(&f->news);
  pthread_mutex_unlock(&f->lock);
  pthread_join(f->thread, NULL);
  int code = f->code;
  for (int i = 0; i < f->count; i++) {
    free(f->slots[i].origins);
    free_buffers(&f->slots[i]);
  }
  pthread_cond_destroy(&f->news);
  pthread_mutex_destroy(&f->lock);
  free(f->slots);
  free(f);
  return code;
}
