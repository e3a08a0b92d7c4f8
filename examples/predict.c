/* A trained model in your own program: it classifies images in a loop, with several requests in
 * flight. To build and run it:
 *
 *     lenet --data mnist/ --save lenet.json
 *     gcc predict.c $(pkg-config --cflags --libs starling) -o predict
 *     ./predict lenet.json mnist/
 */
#include <stdio.h>
#include <stdlib.h>

#include <starling.h>

#define TRY(call)                                                                                  \
  if ((call) != SL_OK) return fprintf(stderr, "predict: %s\n", sl_error()), 1

enum { AT_ONCE = 4, SAMPLES = 16 }; /* requests in flight, and images in each */

int main(int argc, char **argv) {
  struct sl_context *context;
  struct sl_model *model;
  struct sl_dataset *images;
  struct sl_predictor *predictor;
  struct sl_prediction *requests[AT_ONCE];
  if (argc != 3) return fprintf(stderr, "Usage: predict MODEL.json FOLDER|digits\n"), 2;

  TRY(sl_open(&(struct sl_context_options){.seed = 1}, &context));
  TRY(sl_model_open(context, argv[1], &model));
  TRY(sl_predictor_open(model, NULL, &predictor));
  TRY(sl_dataset_open(argv[2], 1, false, &images));

  const struct sl_dataset_info *info = sl_dataset_info(images);
  const struct sl_shape *input = sl_model_input(model);
  char has[96], takes[96];
  if (!sl_shape_equal(&info->sample, input))
    return fprintf(stderr, "predict: %s has samples %s, %s takes %s; give it data of that shape\n",
                   argv[2], sl_shape_text(&info->sample, has, sizeof has), argv[1],
                   sl_shape_text(input, takes, sizeof takes)),
           1;
  int64_t pixels = sl_shape_count(input), classes = sl_shape_count(sl_model_output(model));
  int64_t all = AT_ONCE * SAMPLES, right = 0;
  float *x = malloc((size_t)(all * pixels) * sizeof *x),
        *y = malloc((size_t)(all * classes) * sizeof *y);
  int32_t *labels = malloc((size_t)all * sizeof *labels);
  if (!x || !y || !labels) return fprintf(stderr, "predict: no memory\n"), 1;

  for (int64_t first = 0; first < info->count; first += all) {
    int64_t n = info->count - first < all ? info->count - first : all; /* the last have fewer */
    int count = 0;
    for (int64_t i = 0; i < n; i++)
      TRY(sl_dataset_get(images, first + i, x + i * pixels, &labels[i]));
    for (int64_t i = 0; i < n; i += SAMPLES)
      TRY(sl_predict_submit(predictor, x + i * pixels, n - i < SAMPLES ? n - i : SAMPLES,
                            y + i * classes, &requests[count++]));
    for (int r = 0; r < count; r++) TRY(sl_predict_wait(requests[r]));
    for (int64_t i = 0; i < n; i++) {
      int64_t best = 0;
      for (int64_t c = 1; c < classes; c++)
        if (y[i * classes + c] > y[i * classes + best]) best = c;
      right += best == labels[i];
    }
  }
  printf("%lld of %lld right\n", (long long)right, (long long)info->count);
  if (fflush(stdout) != 0) return perror("predict"), 1;

  free(x), free(y), free(labels);
  sl_dataset_free(images);
  sl_predictor_free(predictor);
  sl_model_free(model);
  sl_close(context);
  return 0;
}
