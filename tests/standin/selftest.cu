#include <stdio.h>
int main() { printf("1..0\n"); }
