#include "chat/schema_format.h"

/* Years 0001 ... 9999, and the leap years among them. */
#define YEAR      "(\\d{3}[1-9]|\\d{2}[1-9]0|\\d[1-9]00|[1-9]000)"
#define LEAP_YEAR "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                 \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)"                     \
    "|02-(0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"

#define LABEL       "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define SHORT_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,22}[A-Za-z0-9])?"
/* At most 253 characters: three labels of any length, or nine of up to 24. */
#define HOST        "((" LABEL "\\.){0,2}" LABEL "|(" SHORT_LABEL "\\.){3,8}" SHORT_LABEL ")"
#define IDN_LABEL   "[A-Za-z0-9](-?[A-Za-z0-9]){0,30}"
#define ATOM        "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}"

#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  OCTET "(\\." OCTET "){3}"
#define H16   "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                                 \
    "((" H16 ":){7}" H16 "|::(" H16 "(:" H16 "){0,6})?|" H16 "::(" H16 "(:" H16 "){0,5})?|" H16 ":" H16      \
    "::(" H16 "(:" H16 "){0,4})?|" H16 "(:" H16 "){2}::(" H16 "(:" H16 "){0,3})?|" H16 "(:" H16              \
    "){3}::(" H16 "(:" H16 "){0,2})?|" H16 "(:" H16 "){4}::(" H16 "(:" H16 ")?)?|" H16 "(:" H16              \
    "){5}::(" H16 ")?|" H16 "(:" H16 "){6}::|::ffff:" IPV4 ")"

#define PATH_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define QUERY     "([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
#define REG_NAME  "[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?"
#define TAIL      "(\\?" QUERY ")?(#" QUERY ")?"
#define URI                                                                                                  \
    "[A-Za-z][A-Za-z0-9+.-]*:(//" REG_NAME "(:\\d{1,5})?(/" PATH_CHAR "*)*|" PATH_CHAR "+(/" PATH_CHAR       \
    "*)*)" TAIL

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration", "^P(\\d{1,9}W|\\d{1,9}Y(\\d{1,9}M(\\d{1,9}D)?)?(T\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?)?"
                 "|\\d{1,9}M(\\d{1,9}D)?|\\d{1,9}D|T(\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?|\\d{1,9}M(\\d{1,9}S)?"
                 "|\\d{1,9}S))$"},
    {"email", "^" ATOM "(\\." ATOM ")?@" HOST "$"},
    {"idn-email", "^" ATOM "(\\." ATOM ")?@" HOST "$"},
    {"hostname", "^" HOST "$"},
    /* Without "--", which announces Punycode. */
    {"idn-hostname", "^((" IDN_LABEL "\\.){0,3}" IDN_LABEL ")$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^" IPV6 "$"},
    {"uuid", "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
    {"uri", "^" URI "$"},
    {"iri", "^" URI "$"},
    {"uri-reference", "^(" URI "|/?"
                      "([A-Za-z0-9._~-]+(/" PATH_CHAR "*)*)?" TAIL ")$"},
    {"iri-reference", "^(" URI "|/?"
                      "([A-Za-z0-9._~-]+(/" PATH_CHAR "*)*)?" TAIL ")$"},
    {"json-pointer", "^(/([^~/]|~[01])*)*$"},
    {"relative-json-pointer", "^(0|[1-9]\\d{0,8})(#|(/([^~/]|~[01])*)*)$"},
    {"uri-template", "^" URI "$"},
};

const char *gs_format_pattern(struct gs_text name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (gs_text_is(name, formats[i].name))
            return formats[i].pattern;
    return NULL;
}
