/* Segmentation: a small U-Net (Ronneberger et al., arXiv 1505.04597) says of each pixel whether it
 * belongs to a disc or a square; bright lines and noise belong to neither. To build and run it:
 *
 *     gcc unet.c $(pkg-config --cflags --libs starling) -o unet
 *     ./unet
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

#define TRY(call)                                                                                  \
  if ((status = (call)) != SL_OK) goto out

enum { SIDE = 32, PIXELS = SIDE * SIDE, TRAIN = 600, TEST = 150, BATCH = 20 };

struct pictures {
  float picture[TRAIN * PIXELS], mask[TRAIN * PIXELS];
};

static int draw(uint64_t *state, int least, int most) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return least + (int)((*state >> 33) % (uint64_t)(most - least + 1));
}

/* One shape, and three lines of its brightness, under noise. */
static void paint(float *picture, float *mask, uint64_t *state) {
  const int radius = draw(state, 4, 9), disc = draw(state, 0, 1);
  const int row = draw(state, radius, SIDE - 1 - radius),
            column = draw(state, radius, SIDE - 1 - radius);
  int line[3];
  for (int i = 0; i < 3; i++) line[i] = draw(state, 0, SIDE - 1);
  for (int y = 0; y < SIDE; y++)
    for (int x = 0; x < SIDE; x++) {
      const int dy = abs(y - row), dx = abs(x - column);
      const int inside = disc ? dy * dy + dx * dx <= radius * radius : dy < radius && dx < radius;
      const int bright = inside || y == line[0] || x == line[1] || x == line[2];
      *mask++ = (float)inside;
      *picture++ = (float)bright + (float)draw(state, -100, 100) / 100;
    }
}

static enum sl_status open_set(const char *name, const struct pictures *pictures, int count,
                               struct sl_dataset **set) {
  const struct sl_dataset_options options = {.name = name,
                                             .sample = SL_SHAPE(1, SIDE, SIDE),
                                             .target = SL_SHAPE(1, SIDE, SIDE),
                                             .count = count};
  return sl_dataset_floats(&options, pictures->picture, pictures->mask, NULL, true, set);
}

/* Two steps down, two steps up; each step up sees the pixels of its size from the way down. */
static enum sl_status build(struct sl_model *model) {
  const struct sl_pool2d_options pool = {.kernel_h = 2};
  struct sl_conv2d_options conv = {
      .channels = 8, .kernel_h = 3, .pad_h = 1, .activation = SL_ACTIVATION_RELU};
  struct sl_conv_transpose2d_options up = {.channels = 16, .kernel_h = 2, .stride_h = 2};
  enum sl_status status;
  TRY(sl_conv2d(model, "down1", &conv));
  TRY(sl_maxpool2d(model, "pool1", &pool));
  conv.channels = 16;
  TRY(sl_conv2d(model, "down2", &conv));
  TRY(sl_maxpool2d(model, "pool2", &pool));
  conv.channels = 32;
  TRY(sl_conv2d(model, "middle", &conv));
  TRY(sl_conv_transpose2d(model, "larger2", &up));
  TRY(sl_concatenate(model, "both2",
                     &(struct sl_concatenate_options){.layer.inputs = "down2,larger2"}));
  conv.channels = 16;
  TRY(sl_conv2d(model, "up2", &conv));
  up.channels = 8;
  TRY(sl_conv_transpose2d(model, "larger1", &up));
  TRY(sl_concatenate(model, "both1",
                     &(struct sl_concatenate_options){.layer.inputs = "down1,larger1"}));
  conv.channels = 8;
  TRY(sl_conv2d(model, "up1", &conv));
  TRY(sl_conv2d(model, "mask", &(struct sl_conv2d_options){.channels = 1, .kernel_h = 1}));
out:
  return status;
}

/* Pixels of both masks over pixels of either one (IoU), and the share of pixels that are right. */
static enum sl_status judge(struct sl_model *model, const struct pictures *test) {
  static float logits[TEST * PIXELS];
  struct sl_predictor *predictor = NULL;
  int64_t both = 0, either = 0, right = 0;
  enum sl_status status;
  TRY(sl_predictor_open(model, NULL, &predictor));
  TRY(sl_predict(predictor, test->picture, TEST, logits));
  for (int i = 0; i < TEST * PIXELS; i++) {
    const int said = logits[i] > 0, is = test->mask[i] > 0;
    both += said && is;
    either += said || is;
    right += said == is;
  }
  printf("IoU %.4f, pixel accuracy %.2f %%\n", (double)both / (double)either,
         100.0 * (double)right / (TEST * PIXELS));
out:
  sl_predictor_free(predictor);
  return status;
}

int main(int argc, char **argv) {
  static struct pictures train, test;
  struct sl_context *context = NULL;
  struct sl_model *model = NULL;
  struct sl_dataset *set = NULL;
  struct sl_loader *batches = NULL;
  struct sl_trainer *trainer = NULL;
  enum sl_status status;
  uint64_t state = 1;
  int epochs = 8;
  char rest;
  const struct sl_trainer_options options = {.loss.kind = SL_LOSS_BCE, .replicas = 2};
  if (argc > 1 && sscanf(argv[1], "%4d%c", &epochs, &rest) != 1) epochs = 0;
  if (argc > 2 || epochs < 1) return fprintf(stderr, "Usage: unet [EPOCHS]\n"), 2;

  for (int i = 0; i < TRAIN; i++)
    paint(train.picture + i * PIXELS, train.mask + i * PIXELS, &state);
  for (int i = 0; i < TEST; i++) paint(test.picture + i * PIXELS, test.mask + i * PIXELS, &state);
  TRY(open_set("shapes", &train, TRAIN, &set));
  TRY(sl_loader_new(set, &(struct sl_loader_options){.batch = BATCH, .shuffle = true}, &batches));
  TRY(sl_open(&(struct sl_context_options){.seed = 1}, &context));
  TRY(sl_model_new(context, &sl_dataset_info(set)->sample, &model));
  TRY(build(model));
  TRY(sl_trainer_new(model, &(struct sl_optimizer){.kind = SL_ADAM, .lr = 0.003f}, NULL, &options,
                     &trainer));
  TRY(sl_fit(trainer, batches, &(struct sl_fit_options){.epochs = epochs, .progress = true}, NULL));
  TRY(judge(model, &test));
  TRY(sl_model_note_data(model, set, &options.loss));
  TRY(sl_model_save(model, "unet.json"));
out:
  if (status != SL_OK)
    fprintf(stderr, "unet: %s\n", sl_error());
  else if (fflush(stdout) != 0 || ferror(stdout))
    status = SL_IO, fprintf(stderr, "unet: the output cannot be written\n");
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_close(context);
  sl_loader_free(batches);
  sl_dataset_free(set);
  return status == SL_OK ? 0 : 1;
}
