"""Schedules: cron expressions whose due times become plans, without a scheduler process."""

from .handle import Schedule, ScheduleInfo, find, find_all, infos
from .new import Wanted, new_schedule

__all__ = ["Schedule", "ScheduleInfo", "Wanted", "find", "find_all", "infos", "new_schedule"]
