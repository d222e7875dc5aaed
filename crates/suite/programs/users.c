/* The C library's databases and locale: getpwuid, getgrgid, strftime, qsort of names. */
#include "suite.h"
#include <grp.h>
#include <locale.h>
#include <pwd.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    setlocale(LC_ALL, "C.UTF-8");
    while (going_on()) {
        struct passwd *user = getpwuid(0);
        CHECK(user && strcmp(user->pw_name, "root") == 0);
        struct group *group = getgrgid(0);
        CHECK(group && strcmp(group->gr_name, "root") == 0 && !getpwnam("no-such-user-here"));
        time_t when = 1000000000;
        char text[64];
        struct tm *tm = gmtime(&when);
        CHECK(tm && strftime(text, sizeof text, "%F %T", tm) == 19 && strcmp(text, "2001-09-09 01:46:40") == 0);
    }
    return suite_end();
}
