/* Text from outside in XML and HTML. */
#ifndef SL_TOOLS_COMMON_ESCAPE_H
#define SL_TOOLS_COMMON_ESCAPE_H

#include <stdio.h>

/* Text as such, in an element or in an attribute's quotes. What no page may hold (control
 * characters, bytes that are no UTF-8) or what would turn the text around it (marks of writing
 * direction) becomes U+FFFD. */
void escape_text(FILE *out, const char *text);

#endif
