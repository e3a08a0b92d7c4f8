/* The parts of starling-predict: byte streams, pictures, samples of files, lines of text, the flow
 * of requests, what is printed, the bench. */
#ifndef SL_TOOLS_PREDICT_PREDICT_H
#define SL_TOOLS_PREDICT_PREDICT_H

#include <stdio.h>

#include <starling.h>

#include "tools/predict/picture.h"
#include "tools/common/command_line.h"

/* "starling-predict: ..." on the error stream, one line in the program's life: what fails first is
 * the reason. Returns code. From any thread. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The library's own words; arguments that it refuses are the user's. */
int fail_library(enum sl_status status);
int fail_memory(void);

/* Whoever reads the output has gone: an end without a word. */
enum { EXIT_FAILED_QUIETLY = -1 };

enum { MOST_TOP = 1000 };

/* ---- byte streams (predict_stream.c): a file or "-", plain or gzip by its first bytes ---- */

struct stream;

/* NULL: it has said why. path must live on. */
struct stream *stream_open(const char *path);
void stream_close(struct stream *stream); /* NULL is legal */
const char *stream_name(const struct stream *stream);

/* Of a plain file its size; -1: not known. */
int64_t stream_size(const struct stream *stream);

/* The first bytes to come, which stay; fewer than STREAM_PEEK only at the end. false: failed. */
enum { STREAM_PEEK = 16 };
bool stream_peek(struct stream *stream, const uint8_t **bytes, size_t *count);

/* size bytes, fewer at the end. false: failed. */
bool stream_read(struct stream *stream, void *bytes, size_t size, size_t *count);

/* All that is left, at most `most` bytes; to be freed. false: failed. */
bool stream_rest(struct stream *stream, size_t most, uint8_t **bytes, size_t *count);

/* A line without its end, valid until the next call; comes as soon as it is there. *line NULL: the
 * end. *ended: a line end was there. false: failed. */
bool stream_line(struct stream *stream, const char **line, size_t *length, bool *ended);

/* ---- samples of files (predict_images.c) ---- */

enum format {
  FORMAT_AUTO,
  FORMAT_IDX,
  FORMAT_CIFAR10,
  FORMAT_PNM,
  FORMAT_PNG,
  FORMAT_RAW,
  FORMAT_TEXT,
  FORMAT_TOKENS
};
enum resize { RESIZE_NONE, RESIZE_BILINEAR, RESIZE_BOX };

/* How pictures become a model's inputs. */
struct preparation {
  struct sl_shape shape; /* of the model's input */
  bool pictures;         /* [1, H, W] or [3, H, W] */
  bool known;            /* how they were normalised */
  float mean[3], deviation[3];
  bool invert;
  enum resize resize;
};

struct image_options {
  struct preparation preparation;
  enum format format;
  const char *labels; /* an IDX file; NULL: beside the images */
  uint64_t seed;      /* of generated digits */
  bool train;         /* training sets of folders and digits */
};

/* Where a sample is from. */
struct origin {
  const char *input;    /* as on the command line */
  int64_t index, label; /* label -1: none */
};

/* Does the library open it as a dataset? A file with the name of a generated set goes first. */
bool is_dataset(const char *name);

/* All samples of one input, one after the other. NULL: failed. */
struct images;
struct images *images_open(const struct image_options *options, const char *path);
/* false: there is none left, or *code says that it failed. */
bool images_next(struct images *images, float *values, struct origin *origin, int *code);
void images_close(struct images *images);

/* ---- pictures to inputs (predict_scale.c) ---- */

/* Colours, size, range. `what` names the picture in messages. */
int prepare(const struct preparation *how, const char *what, const struct picture *picture,
            float *values);

/* ---- requests under way (predict_flow.c) ---- */

/* What is asked in one request, with what is needed to tell of it. */
struct slot {
  struct sl_predictor *predictor;
  int64_t n; /* samples */
  struct origin *origins;
  void *inputs;
  float *outputs;
  /* of a line of text: */
  int64_t steps;    /* of the predictor */
  int64_t tokens;   /* inputs that are there, the rest is padding */
  int64_t scored;   /* of which so many have a target */
  int64_t unknown;  /* words outside the vocabulary */
  int32_t *targets; /* [steps] */
  size_t room;      /* bytes of inputs, for growing ones */
  size_t bytes;     /* that it takes in all, where they count */
  struct sl_prediction *request;
};

/* Requests in the order in which they were sent; a thread of its own waits for each and prints it.
 */
struct flow;
typedef int (*flow_print)(void *user, const struct slot *slot);
struct flow *flow_open(int slots, flow_print print, void *user);
/* One that is free; waits for it, and until so many bytes more are not too many (0: they are the
 * same in all slots). NULL: what was sent before has failed. */
struct slot *flow_slot(struct flow *flow, size_t bytes);
/* false: failed. */
bool flow_send(struct flow *flow, struct slot *slot);
/* Waits for all, and ends it. */
int flow_close(struct flow *flow);

/* ---- what is printed (predict_print.c) ---- */

struct printer {
  const struct sl_model_notes *notes;
  const struct sl_vocabulary *vocabulary; /* of text; NULL: tokens are numbers */
  int64_t classes;
  int top;
  bool logits;
  /* what was printed, for the last line */
  int64_t samples, labelled, right, tokens;
  double log_likelihood;
  double *probabilities; /* [classes] */
};
int print_images(void *printer, const struct slot *slot);
int print_line(void *printer, const struct slot *slot);
int print_end(void); /* is all of it written? */

/* ---- the model, and predictors of it (predict_model.c) ---- */

struct engine_options {
  const char *model, *devices, *placement;
  struct sl_predictor_options predictor;
  uint64_t seed;
};

struct engine {
  const struct engine_options *options;
  struct sl_context *context;
  struct sl_model *model;
  struct sl_shape input;
  int64_t outputs; /* values of a sample's output */
  bool tokens;     /* its inputs are */
  int64_t words;   /* tokens that its embedding has */
  /* of a language model, one for each length, a power of two, that has come so far */
  struct length {
    struct sl_model *model;
    struct sl_predictor *predictor;
  } lengths[32];
  struct sl_predictor *predictor; /* of the model as it is */
};
int engine_open(struct engine *engine, const struct engine_options *options);
int engine_predictor(struct engine *engine); /* opens engine->predictor */
/* One for lines of at least so many tokens, MOST_STEPS at most; *steps becomes its length. NULL:
 * failed. */
enum { MOST_STEPS = 1 << 16 };
struct sl_predictor *engine_for(struct engine *engine, int64_t *steps);
void engine_close(struct engine *engine);

/* ---- lines of text (predict_text.c) ---- */

struct text_options {
  const char *vocabulary; /* NULL: MODEL.vocabulary.json */
  bool tokens;            /* lines are numbers */
  bool strict;            /* a word outside the vocabulary is an error */
};
/* Sends each line of the input as a request. */
int text_run(struct engine *engine, const struct text_options *options,
             const struct sl_vocabulary *vocabulary, const char *path, struct flow *flow);

/* ---- the bench (predict_bench.c) ---- */

struct bench_options {
  int clients;
  int64_t batch;
  double seconds;
  bool json;
};
int bench_run(struct engine *engine, const struct bench_options *options);

/* ---- the program: what its command line says, and the run (predict_run.c) ---- */

struct numbers {
  float value[3];
  int count;
};

struct program {
  struct engine_options engine;
  struct image_options images;
  struct text_options text;
  struct bench_options bench;
  const char *normalize; /* NULL: as the model says */
  struct numbers mean, deviation;
  bool benches, quiet;
  int top;
  bool logits;
  char **inputs; /* their names live as long as the program */
  int input_count;
};

void add_input(struct program *program, const char *name);
/* Folders become their files; what is not there is told before anything else is done. */
int find_inputs(struct program *program);
/* All samples of all inputs, and the summary. */
int answer(struct program *program, struct engine *engine);

#endif
