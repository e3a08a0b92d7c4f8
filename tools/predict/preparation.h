/* How pictures become a model's inputs: colours, size, range of values. */
#ifndef SL_TOOLS_PREDICT_PREPARATION_H
#define SL_TOOLS_PREDICT_PREPARATION_H

#include <starling.h>

#include "data/picture.h"

/* How pictures become a model's inputs. */
struct preparation {
  struct sl_shape shape; /* of the model's input */
  bool pictures;         /* [1, H, W] or [3, H, W] */
  bool known;            /* mean and deviation are set */
  float mean[3], deviation[3];
  bool invert;
  enum sl__resize resize;
  const struct sl_model_notes *notes; /* by which numbers are normalised: the model's, or: */
  struct sl_model_notes given;        /* with the command line's means and deviations */
};

/* Converts a picture to values of the model's input. `what` names the picture in messages. */
int prepare(const struct preparation *how, const char *what, const struct sl__picture *picture,
            float *values);

#endif
