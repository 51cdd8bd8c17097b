// Nothing but the headers that are compiled once for all test programs.
int main() {}
