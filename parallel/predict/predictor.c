/* The predictor: a queue of requests, a thread that makes batches of them, and lanes, each with its
 * own tensors, in which batches run side by side. A batch is a program (core/graph/graph.h): a task
 * where the model is on one device, a task a stage where it is on several. Its end is a callback of
 * StarPU's, which hands out the answers. A request that needs no company is begun by the thread
 * that brings it: the fewer threads an answer passes through, the sooner it is there. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <starling/predict.h>

#include "core/graph/helper.h"
#include "core/base/clock.h"
#include "core/runtime/failure.h"
#include "core/base/half.h"
#include "core/graph/weight_cache.h"
#include "core/graph/graph.h"
#include "core/runtime/wait.h"
#include "parallel/step/plan.h"
#include "parallel/step/precision.h"

enum { MOST_BATCH = 1 << 20, MOST_LANES = 256, DEFAULT_BATCH = 64 };

struct sl_prediction {
  struct sl_predictor *predictor;
  const char *inputs;
  float *outputs;
  int64_t n, taken, answered; /* samples in all, those in batches, and those with an answer */
  double since_us;
  enum sl_status status; /* of the first failure */
  char message[512];
  sem_t ended;
  int core;    /* on which is waited for it; -1: it is not known yet */
  bool queued; /* some of it is not taken yet */
  struct sl_prediction *next;
};

/* Samples of one request in a batch. */
struct piece {
  struct sl_prediction *request;
  int64_t first, rows;
};

/* What a batch of so many rows takes; made when the first one comes. */
struct work {
  struct sl__plan *plan;
  struct sl__graph *program;
  struct sl__tensor *x; /* over the lane's memory */
};

struct lane {
  struct sl_predictor *predictor;
  struct sl__grid grid; /* one replica: its own */
  void *inputs;         /* [max_batch, ...] */
  struct work *works;   /* [max_batch + 1], by rows */
  struct piece *pieces; /* [max_batch] */
  int count;
  int64_t rows;
  bool busy;
  int ends;                      /* what is left to be done with the batch: see end_batch */
  struct sl__inbox_message tell; /* who asked for what is over, by a worker on their own core */
  int over;
  struct sl__graph *program; /* of the batch under way; NULL: it could not begin */
  double before_us;          /* what the program's batches before this one took */
  struct sl__tensor *y;      /* of the batch under way */
  struct sl__tensor
      *own; /* over the outputs of a request, of its last batch that was a whole one */
};

struct sl_predictor {
  struct sl_model *model;
  struct sl_predictor_options options;
  struct sl__weight_cache *pack; /* the parameters */
  struct lane *lanes;
  int lane_count;
  int64_t in_bytes, out_count; /* of a sample */
  int64_t words;               /* of the embedding; 0: the input are no tokens */
  pthread_t thread;
  bool has_thread;
  pthread_mutex_t lock;
  pthread_cond_t news; /* a request, a lane that is free, or the close */
  bool closed;
  bool broken; /* the context has stalled: StarPU may still come back to all that there is */
  struct sl_prediction *first, *last; /* of which not all is taken */
  int64_t waiting;                    /* samples of these that are not taken */
  int waiters;                        /* threads in sl_predict_wait */
  struct sl_predictor_counts counts;
};

/* ---- requests; all with the lock ---- */

static void fail_request(struct sl_prediction *r, enum sl_status status, const char *message) {
  if (r->status != SL_OK) return;
  r->status = status;
  snprintf(r->message, sizeof r->message, "%s", message);
}

static bool is_over(const struct sl_prediction *r) { return !r->queued && r->answered == r->taken; }

/* Of a request, `rows` samples more are done with, one way or the other. Is it over? Then it has to
 * be told of, once: the waiting thread frees it. */
static bool answer(struct sl_prediction *r, int64_t rows) {
  struct sl_predictor *p = r->predictor;
  r->answered += rows;
  p->counts.samples += rows;
  p->counts.requests += is_over(r);
  return is_over(r);
}

static void answer_and_tell(struct sl_prediction *r, int64_t rows) {
  if (answer(r, rows)) sem_post(&r->ended);
}

static struct sl_prediction *leave_queue(struct sl_predictor *p) {
  struct sl_prediction *r = p->first;
  p->first = r->next;
  if (!p->first) p->last = NULL;
  p->waiting -= r->n - r->taken;
  r->queued = false;
  return r;
}

/* What failed is not begun any further. */
static void drop_failed(struct sl_predictor *p) {
  while (p->first && p->first->status != SL_OK) answer_and_tell(leave_queue(p), 0);
}

/* As many samples as there are, the first ones first. */
static void take(struct sl_predictor *p, struct lane *lane) {
  lane->count = 0;
  lane->rows = 0;
  for (drop_failed(p); p->first && lane->rows < p->options.max_batch; drop_failed(p)) {
    struct sl_prediction *r = p->first;
    int64_t room = p->options.max_batch - lane->rows, left = r->n - r->taken;
    int64_t rows = left < room ? left : room;
    lane->pieces[lane->count++] = (struct piece){.request = r, .first = r->taken, .rows = rows};
    if (rows == left)
      leave_queue(p);
    else
      p->waiting -= rows;
    r->taken += rows;
    lane->rows += rows;
  }
}

static void refuse_all(struct sl_predictor *p) {
  for (struct sl_prediction *r = p->first; r; r = r->next)
    fail_request(r, SL_CLOSED, "the predictor was closed before all of the request had begun");
  drop_failed(p);
}

/* ---- batches ---- */

/* What bf16 passes read of parameters that were written since. */
static enum sl_status refresh(const struct lane *lane) {
  struct sl_model *model = lane->predictor->model;
  enum sl_status status = SL_OK;
  for (int i = 0; i < model->count && status == SL_OK && lane->grid.math == SL_MATH_BF16; i++)
    status = sl__bf16_copy_refresh(model, i, &sl__grid_device(&lane->grid, i, 0)->place);
  return status == SL_OK ? sl__weight_cache_refresh(lane->predictor->pack) : status;
}

static enum sl_status record(const struct lane *lane, struct work *work) {
  struct sl_model *model = lane->predictor->model;
  struct sl__step step = {.x = work->x};
  enum sl_status status = refresh(lane); /* once, not in every pass */
  if (status == SL_OK)
    status = sl__graph_new(model->context, &sl__op_subgraph, &sl__op_helper, &work->program);
  if (status != SL_OK) return status;
  sl__graph_use_weight_cache(work->program, lane->predictor->pack, work->x);
  sl__graph_cores(work->program, lane->predictor->options.cores);
  sl__graph_capture(work->program);
  status = sl__plan_submit(work->plan, &step);
  return sl__graph_compile(work->program, work->plan->slices[0].y[model->count - 1], status);
}

static void work_free(struct work *work) {
  sl__plan_free(work->plan); /* waits for the tasks, which need the program */
  sl__tensor_free(work->x);
  sl__graph_free(work->program);
  *work = (struct work){0};
}

static enum sl_status work_of(struct lane *lane, struct work **out) {
  struct sl_model *model = lane->predictor->model;
  struct sl_shape shape = sl__with_rows(lane->rows, &model->sample);
  enum sl_type type = lane->predictor->words ? SL_I32 : SL_F32;
  struct work *work = *out = &lane->works[lane->rows];
  enum sl_status status = SL_OK;
  if (work->program) return SL_OK;
  SL__TRY(sl__tensor_host(model->context, &shape, type, lane->inputs, &work->x));
  SL__TRY(sl__plan_new(model, &lane->grid, lane->rows, 0, false, &work->plan));
  SL__TRY(record(lane, work));
out:
  if (status != SL_OK) work_free(work);
  return status;
}

static void gather(struct lane *lane) {
  size_t sample = (size_t)lane->predictor->in_bytes;
  char *at = lane->inputs;
  for (int i = 0; i < lane->count; i++) {
    const struct piece *piece = &lane->pieces[i];
    size_t bytes = (size_t)piece->rows * sample;
    memcpy(at, piece->request->inputs + (size_t)piece->first * sample, bytes);
    at += bytes;
  }
}

/* Where nothing but CPUs reads it, StarPU need not know: the batch before has been answered. But
 * where a stall may end the wait, the request's memory may go meanwhile. */
static enum sl_status fill(struct lane *lane, struct sl__tensor *x) {
  if (!starpu_cuda_worker_get_count() && !x->context->active) {
    gather(lane);
    return SL_OK;
  }
  enum sl_status status = sl__acquire(x->context, x->handle, STARPU_W);
  if (status != SL_OK) return status;
  gather(lane);
  sl__tensor_written(x);
  starpu_data_release(x->handle);
  return SL_OK;
}

/* Answers in memory, of the model's own type, to the requests. */
static void hand_out(const struct lane *lane, const void *values) {
  int64_t each = lane->predictor->out_count, at = 0;
  for (int i = 0; i < lane->count; i++) {
    const struct piece *piece = &lane->pieces[i];
    float *to = piece->request->outputs + piece->first * each;
    int64_t count = piece->rows * each;
    if (lane->y->type == SL_BF16)
      for (int64_t k = 0; k < count; k++)
        to[k] = sl__bf16_value(((const uint16_t *)values)[at + k]);
    else
      memcpy(to, (const float *)values + at, (size_t)count * sizeof *to);
    at += count;
  }
}

/* With the lock: of these, so many are over. */
static void answer_batch(struct lane *lane, enum sl_status status) {
  struct sl_predictor *p = lane->predictor;
  lane->over = 0;
  for (int i = 0; i < lane->count; i++) {
    struct piece *piece = &lane->pieces[i];
    if (status != SL_OK) fail_request(piece->request, status, sl_error());
    if (answer(piece->request, piece->rows)) lane->pieces[lane->over++].request = piece->request;
  }
  lane->count = 0;
  p->counts.batches++;
  if (lane->program) p->counts.computing_us += sl__graph_computed(lane->program) - lane->before_us;
  __atomic_fetch_sub(&p->model->context->batches, 1, __ATOMIC_RELAXED);
}

/* When all is done with its batch the lane is free again. The last that is done with the predictor
 * here: it may be freed then. */
static void end_batch(struct lane *lane) {
  struct sl_predictor *p = lane->predictor;
  pthread_mutex_lock(&p->lock);
  lane->busy = --lane->ends > 0;
  if (!lane->busy && (p->first || p->closed)) pthread_cond_broadcast(&p->news);
  pthread_mutex_unlock(&p->lock);
}

static void tell(const struct lane *lane) {
  for (int i = 0; i < lane->over; i++) sem_post(&lane->pieces[i].request->ended);
}

static void tell_here(struct sl__inbox_message *errand, int member) {
  struct lane *lane = (struct lane *)((char *)errand - offsetof(struct lane, tell));
  struct sl_prediction *request = lane->pieces[0].request; /* it lives until it is told of */
  (void)member;
  end_batch(lane);
  sem_post(&request->ended); /* last: who wakes up takes this core, and may ask again */
}

/* Who asked goes on; core: where they wait. Without the lock, which would stop who wakes up at
 * once; and from their own core, if a worker stays there: to wake up a thread on another one takes
 * 30 us on a virtual machine. */
static void tell_batch(struct lane *lane, int core) {
  lane->tell.run = tell_here;
  if (lane->over == 1 && sl__inbox_put_on_core(lane->predictor->model->context, core, &lane->tell))
    return;
  tell(lane);
  end_batch(lane);
}

static bool is_large(const struct sl__tensor *y) { return y->bytes >= (size_t)256 << 10; }

/* StarPU's callback: the last layer's output is in main memory. With the lock, lest a batch that
 * was given up be written to where its requests were. The answer first, then what StarPU wants;
 * but what it has in the request's memory it must let go of before. */
static void batch_computed(void *argument) {
  struct lane *lane = argument;
  struct sl__tensor *y = lane->y;
  enum sl_status status = sl__task_failure();
  bool own = y == lane->own;
  if (own) {
    starpu_data_release(y->handle);
    sl__tensor_invalidate(y);
  }
  pthread_mutex_lock(&lane->predictor->lock);
  if (status == SL_OK && !own) hand_out(lane, starpu_data_get_local_ptr(y->handle));
  answer_batch(lane, status);
  int core = lane->over == 1 ? lane->pieces[0].request->core : -1;
  lane->ends = 2;
  pthread_mutex_unlock(&lane->predictor->lock);
  tell_batch(lane, core);
  if (!own) starpu_data_release(y->handle);
  if (!own && is_large(y)) sl__tensor_invalidate(y); /* a small one may keep its memory */
  end_batch(lane);
}

/* Large answers go straight to where the request wants them, if the batch is one request, or a part
 * of one. Not where a stall may end the wait: the answer would come behind its back. */
static bool is_direct(const struct lane *lane, const struct sl__tensor *y) {
  return lane->count == 1 && y->type == SL_F32 && is_large(y) &&
         !lane->predictor->model->context->active;
}

/* A tensor over the request's outputs; that of the last batch, where they are the same ones. */
static enum sl_status own_output(struct lane *lane, const struct sl__tensor *y) {
  const struct piece *piece = &lane->pieces[0];
  float *to = piece->request->outputs + piece->first * lane->predictor->out_count;
  if (lane->own && lane->own->host == to && lane->own->bytes == y->bytes) return SL_OK;
  sl__tensor_free(lane->own);
  lane->own = NULL;
  return sl__tensor_host(y->context, &y->shape, y->type, to, &lane->own);
}

/* The only batch under way gets all cores; of several each has one. */
static enum sl_status submit(const struct lane *lane, struct sl__graph *program,
                             struct sl__tensor *own) {
  bool alone = __atomic_load_n(&lane->predictor->model->context->batches, __ATOMIC_RELAXED) == 1;
  return (alone ? sl__graph_submit_to_all : sl__graph_submit)(program, SL__PRIORITY_FORWARD, own);
}

static enum sl_status begin_batch(struct lane *lane) {
  struct sl_context *context = lane->predictor->model->context;
  struct work *work;
  enum sl_status status;
  lane->program = NULL;
  starpu_pthread_mutex_lock(&context->submit_mutex);
  SL__TRY(work_of(lane, &work));
  SL__TRY(fill(lane, work->x));
  SL__TRY(refresh(lane));
  lane->y = work->plan->slices[0].y[lane->predictor->model->count - 1];
  bool direct = is_direct(lane, lane->y);
  if (direct) SL__TRY(own_output(lane, lane->y));
  if (direct) lane->y = lane->own;
  lane->program = work->program;
  lane->before_us = sl__graph_computed(work->program);
  SL__TRY(submit(lane, work->program, direct ? lane->own : NULL));
  if (starpu_data_acquire_cb(lane->y->handle, STARPU_R, batch_computed, lane))
    status = sl__fail(SL_STARPU, "StarPU cannot call back when an answer is there");
out:
  starpu_pthread_mutex_unlock(&context->submit_mutex);
  return status;
}

/* With the lock. */
static void claim(struct sl_predictor *p, struct lane *lane) {
  take(p, lane);
  lane->busy = true;
  __atomic_fetch_add(&p->model->context->batches, 1, __ATOMIC_RELAXED);
}

/* What it fails with, its requests are told. */
static void run_batch(struct lane *lane) {
  enum sl_status status = begin_batch(lane);
  if (status == SL_OK) return;
  pthread_mutex_lock(&lane->predictor->lock);
  answer_batch(lane, status);
  lane->ends = 1;
  pthread_mutex_unlock(&lane->predictor->lock);
  tell_batch(lane, -1);
}

/* ---- the thread ---- */

static struct lane *free_lane(struct sl_predictor *p) {
  for (int i = 0; i < p->lane_count; i++)
    if (!p->lanes[i].busy) return &p->lanes[i];
  return NULL;
}

/* Is a batch to begin? Else until when (0: until there are news) it is to be waited. */
static bool is_due(struct sl_predictor *p, double *until_us) {
  *until_us = 0;
  drop_failed(p);
  if (!p->first || !free_lane(p)) return false;
  if (!p->options.max_delay_us || p->waiting >= p->options.max_batch) return true;
  *until_us = p->first->since_us + (double)p->options.max_delay_us;
  return sl__microseconds() >= *until_us;
}

/* Nothing comes back any more: with the lock. */
static void give_up(struct sl_predictor *p, enum sl_status status) {
  char why[sizeof p->first->message];
  snprintf(why, sizeof why, "%s", sl_error());
  p->closed = p->broken = true;
  for (struct sl_prediction *r = p->first; r; r = r->next) fail_request(r, status, why);
  drop_failed(p);
  for (int i = 0; i < p->lane_count; i++) {
    struct lane *lane = &p->lanes[i];
    for (int k = 0; k < lane->count && lane->busy; k++) {
      fail_request(lane->pieces[k].request, status, why);
      answer_and_tell(lane->pieces[k].request, lane->pieces[k].rows);
    }
    lane->count = 0;
  }
}

/* A context that watches over stalls tells of them to who asks. */
static void look_for_stalls(struct sl_predictor *p) {
  struct sl_context *context = p->model->context;
  if (!context->active) return;
  pthread_mutex_unlock(&p->lock);
  enum sl_status status = sl__wait_check(context);
  pthread_mutex_lock(&p->lock);
  if (status != SL_OK && !p->broken) give_up(p, status);
}

static void wait_for_news(struct sl_predictor *p, double until_us) {
  const double look_us = 50000;
  bool watched = p->model->context->active != NULL;
  if (watched && (!(until_us > 0) || until_us > sl__microseconds() + look_us))
    until_us = sl__microseconds() + look_us;
  struct timespec until = {.tv_sec = (time_t)(until_us / 1e6)};
  until.tv_nsec = (long)((until_us - 1e6 * (double)until.tv_sec) * 1e3);
  if (until_us > 0)
    pthread_cond_timedwait(&p->news, &p->lock, &until);
  else
    pthread_cond_wait(&p->news, &p->lock);
  if (watched) look_for_stalls(p);
}

static bool any_busy(const struct sl_predictor *p) {
  for (int i = 0; i < p->lane_count; i++)
    if (p->lanes[i].busy) return true;
  return false;
}

static void *dispatch(void *argument) {
  struct sl_predictor *p = argument;
  double until_us;
  pthread_mutex_lock(&p->lock);
  while (!p->closed) {
    if (!is_due(p, &until_us)) {
      wait_for_news(p, until_us);
      continue;
    }
    struct lane *lane = free_lane(p);
    claim(p, lane);
    pthread_mutex_unlock(&p->lock);
    run_batch(lane);
    pthread_mutex_lock(&p->lock);
  }
  refuse_all(p);
  while (!p->broken && any_busy(p)) wait_for_news(p, 0);
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

/* ---- opening and closing ---- */

static enum sl_status check(struct sl_predictor_options *o, const struct sl_model *model) {
  if (o->max_batch < 0 || o->max_batch > MOST_BATCH)
    return sl__fail(SL_BAD_ARGUMENT, "a max_batch of %lld: must be from 1 to %d",
                    (long long)o->max_batch, MOST_BATCH);
  if (o->max_delay_us < 0 || o->max_delay_us > 60000000)
    return sl__fail(SL_BAD_ARGUMENT, "a max_delay_us of %lld: must be from 0 to 60000000",
                    (long long)o->max_delay_us);
  if (o->batches < 0 || o->batches > MOST_LANES)
    return sl__fail(SL_BAD_ARGUMENT, "%d batches under way: must be from 1 to %d", o->batches,
                    MOST_LANES);
  if (o->cores < 0)
    return sl__fail(SL_BAD_ARGUMENT, "a predictor of %d cores: must be at least 1", o->cores);
  if (sl_placement_ranks(model) > 1)
    return sl__fail(SL_BAD_ARGUMENT, "the model is placed over %d ranks; a predictor is of one",
                    sl_placement_ranks(model));
  if (!o->max_batch) o->max_batch = DEFAULT_BATCH;
  int workers = (int)starpu_worker_get_count();
  if (!o->batches) o->batches = workers < MOST_LANES / 2 ? 2 * workers : MOST_LANES;
  return SL_OK;
}

/* The lane's devices are those of replica `number` of all. */
static enum sl_status lane_grid(struct sl_predictor *p, const struct sl__grid *all, int number,
                                struct sl__grid *grid) {
  const struct sl_trainer_options options = {.replicas = 1, .math = p->options.math};
  enum sl_status status = sl__grid_new(p->model, &options, grid);
  for (int s = 0; s < grid->stages && status == SL_OK; s++)
    grid->devices[s] = all->devices[s * all->replicas + number];
  return status;
}

static enum sl_status lane_new(struct sl_predictor *p, const struct sl__grid *all, int number) {
  struct lane *lane = &p->lanes[number];
  size_t most = (size_t)p->options.max_batch;
  enum sl_status status;
  lane->predictor = p;
  SL__TRY(lane_grid(p, all, number, &lane->grid));
  lane->inputs = sl__alloc(most, (size_t)p->in_bytes, "a batch to predict");
  lane->works = sl__alloc(most + 1, sizeof *lane->works, "a batch to predict");
  lane->pieces = sl__alloc(most, sizeof *lane->pieces, "a batch to predict");
  if (!lane->inputs || !lane->works || !lane->pieces) status = SL_NO_MEMORY;
out:
  return status;
}

static enum sl_status open_lanes(struct sl_predictor *p) {
  const struct sl_trainer_options options = {.replicas = p->options.batches,
                                             .math = p->options.math};
  struct sl__grid all = {0};
  enum sl_status status;
  p->lanes = sl__alloc((size_t)p->options.batches, sizeof *p->lanes, "a predictor");
  if (!p->lanes) return SL_NO_MEMORY;
  SL__TRY(sl__grid_new(p->model, &options, &all));
  for (; p->lane_count < p->options.batches; p->lane_count++)
    SL__TRY(lane_new(p, &all, p->lane_count));
out:
  if (status != SL_OK && p->lane_count < p->options.batches) p->lane_count++; /* half made */
  sl__grid_clear(&all);
  return status;
}

static enum sl_status start(struct sl_predictor *p) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->news, &attributes);
  pthread_condattr_destroy(&attributes);
  int error = pthread_create(&p->thread, NULL, dispatch, p);
  p->has_thread = !error;
  if (!error) return SL_OK;
  pthread_cond_destroy(&p->news);
  pthread_mutex_destroy(&p->lock);
  return sl__fail(SL_NO_MEMORY, "a predictor's thread cannot be started: %s", strerror(error));
}

enum sl_status sl_predictor_open(struct sl_model *model, const struct sl_predictor_options *options,
                                 struct sl_predictor **predictor) {
  enum sl_status status;
  *predictor = NULL;
  struct sl_predictor *p = sl__alloc(1, sizeof *p, "a predictor");
  if (!p) return SL_NO_MEMORY;
  p->model = model;
  if (options) p->options = *options;
  SL__TRY(sl_model_build(model));
  SL__TRY(check(&p->options, model));
  p->words = model->takes_tokens ? sl__model_words(model) : 0;
  p->in_bytes = sl_shape_count(&model->sample) * (int64_t)sizeof(float); /* or int32_t */
  p->out_count = sl_shape_count(sl_model_output(model));
  SL__TRY(sl__weight_cache_new(model->context, &sl__op_prepack, &p->pack));
  SL__TRY(open_lanes(p));
  SL__TRY(start(p));
  *predictor = p;
  return SL_OK;
out:
  sl_predictor_free(p);
  return status;
}

void sl_predictor_close(struct sl_predictor *p) {
  if (!p->has_thread) return;
  pthread_mutex_lock(&p->lock);
  p->closed = true;
  pthread_cond_broadcast(&p->news);
  pthread_mutex_unlock(&p->lock);
}

static void lane_free(struct sl_predictor *p, struct lane *lane) {
  for (int64_t rows = 0; lane->works && rows <= p->options.max_batch; rows++)
    work_free(&lane->works[rows]);
  sl__tensor_free(lane->own);
  free(lane->works);
  free(lane->pieces);
  free(lane->inputs);
  sl__grid_clear(&lane->grid);
}

void sl_predictor_free(struct sl_predictor *p) {
  if (!p) return;
  if (p->has_thread) {
    sl_predictor_close(p);
    pthread_join(p->thread, NULL);
    pthread_mutex_lock(&p->lock);
    while (p->waiters) pthread_cond_wait(&p->news, &p->lock);
    pthread_mutex_unlock(&p->lock);
    if (p->broken) return; /* left as it is, as its context */
    pthread_cond_destroy(&p->news);
    pthread_mutex_destroy(&p->lock);
  }
  for (int i = 0; i < p->lane_count; i++) lane_free(p, &p->lanes[i]);
  sl__weight_cache_free(p->pack);
  free(p->lanes);
  free(p);
}

struct sl_predictor_counts sl_predictor_count(struct sl_predictor *p) {
  pthread_mutex_lock(&p->lock);
  struct sl_predictor_counts counts = p->counts;
  pthread_mutex_unlock(&p->lock);
  return counts;
}

/* ---- requests from outside ---- */

static enum sl_status check_request(const struct sl_predictor *p, const void *inputs, int64_t n,
                                    const float *outputs) {
  if (!inputs || !outputs || n < 1 || n > INT64_MAX / p->in_bytes)
    return sl__fail(SL_BAD_ARGUMENT, "a request of %lld samples%s: must be at least 1, with memory",
                    (long long)n, inputs && outputs ? "" : " without memory");
  const int32_t *tokens = inputs;
  int64_t each = p->in_bytes / (int64_t)sizeof *tokens;
  for (int64_t i = 0; p->words && i < n * each; i++)
    if (tokens[i] < 0 || tokens[i] >= p->words)
      return sl__fail(SL_BAD_ARGUMENT, "sample %lld: token %lld is %d, but the model has 0 to %lld",
                      (long long)(i / each), (long long)(i % each), tokens[i],
                      (long long)p->words - 1);
  return SL_OK;
}

/* With the lock: a lane for a request that is a batch by itself, and has nobody before it; or NULL.
 */
static struct lane *own_lane(struct sl_predictor *p, int64_t n) {
  bool alone = n >= p->options.max_batch || !p->options.max_delay_us;
  return !p->first && alone && n <= p->options.max_batch ? free_lane(p) : NULL;
}

/* Begun at once, or into the queue; sl_predict's is on its stack. */
static enum sl_status enqueue(struct sl_predictor *p, struct sl_prediction *r, const void *inputs,
                              int64_t n, float *outputs) {
  enum sl_status status = check_request(p, inputs, n, outputs);
  if (status != SL_OK) return status;
  *r = (struct sl_prediction){
      .predictor = p, .inputs = inputs, .outputs = outputs, .n = n, .core = -1};
  sem_init(&r->ended, 0, 0);
  r->since_us = p->options.max_delay_us ? sl__microseconds() : 0;
  pthread_mutex_lock(&p->lock);
  bool closed = p->closed;
  struct lane *lane = closed ? NULL : own_lane(p, n);
  if (!closed) {
    r->queued = true;
    *(p->last ? &p->last->next : &p->first) = r;
    p->last = r;
    p->waiting += n;
    if (lane)
      claim(p, lane);
    else
      pthread_cond_broadcast(&p->news);
  }
  pthread_mutex_unlock(&p->lock);
  if (lane) run_batch(lane);
  if (!closed) return SL_OK;
  sem_destroy(&r->ended);
  return sl__fail(SL_CLOSED, "a request of %lld samples came after the predictor was closed",
                  (long long)n);
}

static enum sl_status wait_for(struct sl_prediction *r) {
  struct sl_predictor *p = r->predictor;
  pthread_mutex_lock(&p->lock);
  p->waiters++;
  r->core = sched_getcpu();
  pthread_mutex_unlock(&p->lock);
  while (sem_wait(&r->ended) != 0 && errno == EINTR) continue;
  pthread_mutex_lock(&p->lock);
  p->waiters--;
  if (p->closed) pthread_cond_broadcast(&p->news);
  pthread_mutex_unlock(&p->lock);
  sem_destroy(&r->ended);
  return r->status == SL_OK ? SL_OK : sl__fail(r->status, "%s", r->message);
}

enum sl_status sl_predict(struct sl_predictor *p, const void *inputs, int64_t n, float *outputs) {
  struct sl_prediction request;
  enum sl_status status = enqueue(p, &request, inputs, n, outputs);
  return status == SL_OK ? wait_for(&request) : status;
}

enum sl_status sl_predict_submit(struct sl_predictor *p, const void *inputs, int64_t n,
                                 float *outputs, struct sl_prediction **request) {
  *request = NULL;
  struct sl_prediction *r = sl__alloc(1, sizeof *r, "a request");
  if (!r) return SL_NO_MEMORY;
  enum sl_status status = enqueue(p, r, inputs, n, outputs);
  if (status == SL_OK)
    *request = r;
  else
    free(r);
  return status;
}

enum sl_status sl_predict_wait(struct sl_prediction *r) {
  if (!r) return SL_OK;
  enum sl_status status = wait_for(r);
  free(r);
  return status;
}
