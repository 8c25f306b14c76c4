"""Why a graph is as it is: chains of inference, each step with the place in the file that it rests on."""
