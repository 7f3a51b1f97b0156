/*
 * Elementary functions with the same bits on every machine: built from IEEE add, multiply and round only
 * (the build turns contraction into fused multiply-add off), evaluated in double, rounded to float once.
 * Errors stay below 0.51 float ulp over the ranges given.
 */
#ifndef GS_BASE_MATH_H
#define GS_BASE_MATH_H

/* e^x for any float: 0 below -104, infinity above 88.73, NaN for NaN. */
float gs_exp(float x);

/* The same in double (error below 2 ulp), for sums of probabilities. */
double gs_exp64(double x);

/* Sine and cosine of |x| < 2^20 radians; x is taken as exact. */
void gs_sincos(float x, float *sine, float *cosine);

/* Natural logarithm of a positive, finite double (error at most 2 ulp). */
double gs_log64(double x);

#endif
