/* Pieces of an HTML page. All text is escaped. */
#ifndef SL_TOOLS_REPORT_HTML_H
#define SL_TOOLS_REPORT_HTML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define HTML_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

/* A part of the page is missing, since there was no memory for it: the page is of no use. */
void html_lacks_memory(void);

/* Is everything written? */
bool html_is_whole(FILE *out);

/* The formatted text, escaped. */
void html_text(FILE *out, const char *format, ...) HTML_PRINTF(2, 3);

/* <tag class="class">text</tag>. class NULL: none. tag and class are not escaped. */
void html_element(FILE *out, const char *tag, const char *class, const char *format, ...)
    HTML_PRINTF(4, 5);

/* A table that scrolls if it is wider than the page. */
void html_table_begin(FILE *out, const char *class);
void html_table_end(FILE *out);

/* A row of titles, up to NULL. A title that begins with '#' is of a column of numbers. */
void html_titles(FILE *out, const char *const *titles);

void html_base64(FILE *out, const unsigned char *bytes, size_t size);

#endif
